import { printStderr, printStdout } from "../../../ffi/sys/stdio.ts";
import { loadPlugins } from "../../../plugins/registry.ts";
import { findUnusedNetworks, pruneNetworks, type UnusedNetwork } from "../../../networks/prune.ts";
import type { RemovalReport } from "../../../networks/remove.ts";
import { subnetsOfConfiguration } from "../../../networks/subnets.ts";
import { PLUGIN_CALL_OPTIONS, PRINT_JSON_OPTION } from "../../arguments/network.ts";
import { printRemoval } from "../../arguments/removal.ts";
import { confDirectory, DRY_RUN_OPTION, DRY_RUN_OPTIONS, log, openRuntime } from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";
import { UsageError } from "../../../program/usage_error.ts";
import { confirm } from "../../output/confirm.ts";
import { openScreen } from "../../output/screen.ts";
import { formatTable } from "../../output/table.ts";

const HEADER = ["UNUSED NETWORK", "SUBNETS", "FILE"];

const prune: Command = {
  name: "prune",
  summary: 'remove all networks of "network create" that no container uses, after listing them',
  description:
    `Networks of other programs stay without --all: an engine may rely on one before its first container runs.`,
  arguments: [],
  options: [
    { name: "all", help: "also networks that other programs or people configured" },
    { name: "yes", short: "y", help: "do not ask" },
    ...DRY_RUN_OPTIONS,
    ...PLUGIN_CALL_OPTIONS,
    PRINT_JSON_OPTION,
  ],
  examples: [{ command: "cni network prune --yes", about: "remove them without a question, as in a script" }],
  async run(input, context) {
    const runtime = openRuntime(input, context);
    await loadPlugins();
    const directory = confDirectory(input, context);
    const unused = findUnusedNetworks(runtime, directory, input.has("all"), log);
    const remove = (report: RemovalReport) => pruneNetworks(unused, { runtime, directory, log }, report);
    const isJson = input.has(PRINT_JSON_OPTION.name);
    if (unused.length > 0) {
      const table = formatTable(HEADER, unused.map(tableRow), openScreen(isJson ? 2 : 1, context.env));
      if (isJson) printStderr(table.trimEnd());
      else printStdout(table);
    } else if (!isJson) log("There is no unused network");
    if (input.has(DRY_RUN_OPTION.name)) {
      const { printDryRun } = await import("../../arguments/dry_run.ts");
      const networks = unused.map(({ list, file }) => ({ name: list.name, file }));
      return await printDryRun(input, context, () => remove(() => {}), { networks });
    }
    const isConfirmed = unused.length === 0 || input.has("yes") || askToRemove(unused.length);
    return printRemoval(input, (report) => isConfirmed ? remove(report) : undefined);
  },
};
export default prune;

function askToRemove(count: number): boolean {
  const answer = confirm(count === 1 ? "Remove this network?" : `Remove these ${count} networks?`);
  if (answer !== undefined) return answer;
  throw new UsageError('"network prune" asks before it removes anything: without a terminal, give --yes');
}

function tableRow({ list, file }: UnusedNetwork): string[] {
  return [list.name, subnetsOfConfiguration(list).join(", "), file];
}
