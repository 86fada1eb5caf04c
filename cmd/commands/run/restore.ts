import { printStdout } from "../../../ffi/sys/stdio.ts";
import { loadPlugins } from "../../../plugins/registry.ts";
import type { Runtime } from "../../../runtime/runtime.ts";
import { formatDocument } from "../../output/document.ts";
import type { NetworkConfigList } from "../../../spec/network_config_list.ts";
import {
  DRY_RUN_OPTION,
  DRY_RUN_OPTIONS,
  isNetworkName,
  loadRequested,
  log,
  NETWORK_ARGUMENT,
  openRuntime,
  RUNTIME_OPTIONS,
  STDERR,
} from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";
import type { CliContext } from "../../../program/start.ts";
import { openProgressLine } from "../../output/progress.ts";
import type { ParsedOptions } from "../../options.ts";
import { UsageError } from "../../../program/usage_error.ts";

const restore: Command = {
  name: "restore",
  summary: "put back flushed rules of attachments",
  description: `Use it after "nft flush ruleset", "firewall-cmd --reload" or the like. Present rules are not changed.
Prints JSON. "incomplete" attachments have lost an interface or an address, which is not put back.`,
  arguments: [{ ...NETWORK_ARGUMENT, optional: true }],
  options: [{ name: "all", help: "all networks, as without NETWORK" }, ...DRY_RUN_OPTIONS, ...RUNTIME_OPTIONS],
  examples: [{ command: "cni run restore", about: "put back the rules of everything that is attached" }],
  async run(input, context) {
    const [word = ""] = input.words;
    if (word !== "" && input.has("all")) {
      throw new UsageError(`"run restore" takes a network or --all, not both: got "${word}"`);
    }
    using progress = openProgressLine("Restoring", context.env);
    const runtime = openRuntime(input, context, progress.above(STDERR));
    await loadPlugins();
    const network = word === "" ? undefined : networkToRestore(word, runtime, input, context);
    if (input.has(DRY_RUN_OPTION.name)) {
      const { printDryRun } = await import("../../arguments/dry_run.ts");
      return await printDryRun(input, context, () => runtime.restore(network, progress.report));
    }
    const report = runtime.restore(network, progress.report);
    printStdout(formatDocument(report));
    const failed = report.attachments.filter(({ state }) => state === "failed").length;
    const failures = [
      ...failed ? [`${failed} of ${report.attachments.length} attachments`] : [],
      ...report.problems.length ? ["what the document names"] : [],
    ];
    if (failures.length === 0) return 0;
    // The document names them: no error object may follow it.
    log(`Cannot restore ${failures.join(" and ")}`);
    return 1;
  },
};
export default restore;

/** Attachments have a copy: the file may be gone or broken. */
function networkToRestore(
  word: string,
  runtime: Runtime,
  input: ParsedOptions,
  context: CliContext,
): NetworkConfigList | string {
  try {
    return loadRequested(word, input, context);
  } catch (error) {
    if (!isNetworkName(word) || runtime.attachments(word).length === 0) throw error;
    return word;
  }
}
