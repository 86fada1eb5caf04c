/** Only dry runs load this. @module */
import { printStdout } from "../../ffi/sys/stdio.ts";
import type { AddRuntimeConf } from "../../runtime/add.ts";
import type { DryRun } from "../../inspect/effects/dry_run.ts";
import type { Runtime } from "../../runtime/runtime.ts";
import { formatDocument } from "../output/document.ts";
import { CniError } from "../../spec/error.ts";
import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import { formatResult } from "../../spec/result.ts";
import { LATEST } from "../../spec/version.ts";
import type { CliContext } from "../../program/start.ts";
import type { ParsedOptions } from "../options.ts";
import { formatEffects, formatEffectSummary } from "../output/effects.ts";
import { openScreen } from "../output/screen.ts";
import { JSON_OPTION, log, VERBOSE_OPTION } from "./runtime.ts";

export type DryRunDocument = Omit<DryRun, "failure"> & {
  readonly result?: object;
  /** `network prune` would remove these. */
  readonly networks?: readonly { readonly name: string; readonly file: string }[];
  /** The specification's error object, if the command would fail after these effects. */
  readonly failure?: object;
};

/**
 * @param known what `--json` says of the command besides
 * @throws {Error} the command's failure, after the effects
 */
export async function printDryRun(
  options: ParsedOptions,
  { env }: CliContext,
  command: () => unknown,
  known: Pick<DryRunDocument, "networks"> = {},
): Promise<number> {
  const { dryRun } = await import("../../inspect/effects/dry_run.ts");
  return printFound({ ...dryRun(command), ...known }, options, env);
}

export async function printDryRunOfAdd(
  options: ParsedOptions,
  { env }: CliContext,
  runtime: Runtime,
  network: NetworkConfigList,
  parameters: AddRuntimeConf,
): Promise<number> {
  const { dryRunOfAdd } = await import("../../inspect/effects/dry_run_add.ts");
  const { result, ...found } = dryRunOfAdd(runtime, network, parameters);
  if (result && !options.has(JSON_OPTION.name)) {
    const addresses = (result.ips ?? []).map(({ address, gateway }) =>
      gateway === undefined ? address : `${address} with gateway ${gateway}`
    );
    printStdout(`"${parameters.ifname}" would get ${addresses.join(", ") || "no address"}\n`);
  }
  return printFound({ ...found, ...result && { result: formatResult(result, network.cniVersion) } }, options, env);
}

function printFound(
  { failure, ...found }: DryRun & Pick<DryRunDocument, "result" | "networks">,
  options: ParsedOptions,
  env: CliContext["env"],
): number {
  if (!options.has(JSON_OPTION.name)) {
    const format = options.has(VERBOSE_OPTION.name) ? formatEffects : formatEffectSummary;
    // Of a command that is refused at once, only the reason tells anything.
    if (failure === undefined || found.effects.length > 0) printStdout(format(found.effects, openScreen(1, env)));
    for (const note of found.notes) log(note);
    if (failure !== undefined) throw failure;
    return 0;
  }
  const error = failure === undefined ? undefined : CniError.from(failure);
  const document: DryRunDocument = { ...found, ...error && { failure: error.toJSON(LATEST) } };
  printStdout(formatDocument(document));
  if (!error) return 0;
  log(error.message);
  return 1;
}
