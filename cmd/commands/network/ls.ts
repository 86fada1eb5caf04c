import { printStdout } from "../../../ffi/sys/stdio.ts";
import { loadPlugins } from "../../../plugins/registry.ts";
import { listNetworks, type NetworkSummary } from "../../../networks/list.ts";
import { withoutLoopbacks } from "../../../networks/loopbacks.ts";
import { formatDocument } from "../../output/document.ts";
import { countProblems, DIRECTORY_OPTIONS, PRINT_JSON_OPTION } from "../../arguments/network.ts";
import { confDirectory, log, openRuntime } from "../../arguments/runtime.ts";
import { isQuiet, printNames, QUIET_OPTION } from "../../arguments/quiet.ts";
import type { Command } from "../../command.ts";
import { openScreen } from "../../output/screen.ts";
import { formatTable } from "../../output/table.ts";
import { formatFile, formatPools } from "../../output/network.ts";

const HEADER = ["NETWORK", "DRIVER", "SUBNETS", "USED", "FREE", "ATTACHED", "FILE"];

const ls: Command = {
  name: "ls",
  summary: "list networks, their subnets and how many addresses are free",
  description: `USED and FREE count the addresses of host-local, for each address that a container gets.
The exit status is 1 if a configuration is broken; the others are listed.`,
  arguments: [],
  options: [QUIET_OPTION, PRINT_JSON_OPTION, ...DIRECTORY_OPTIONS],
  examples: [{ command: "cni network ls --json", about: "all networks, for programs" }],
  async run(input, context) {
    const quiet = isQuiet(input);
    const runtime = openRuntime(input, context);
    await loadPlugins();
    const problems = countProblems();
    const isJson = input.has(PRINT_JSON_OPTION.name);
    const attachments = isJson ? runtime.attachments() : withoutLoopbacks(runtime.attachments());
    const messages = { log, problem: problems.report };
    const networks = listNetworks(runtime, confDirectory(input, context), attachments, messages);
    if (quiet) printNames(networks.map(({ name }) => name));
    else if (isJson) printStdout(formatDocument(networks));
    else printStdout(formatTable(HEADER, networks.map(tableRow), openScreen(1, context.env)));
    return problems.exitStatus();
  },
};
export default ls;

function tableRow(network: NetworkSummary): string[] {
  const { name, driver, subnets, pools, attachments } = network;
  return [
    name,
    driver,
    subnets.join(", "),
    formatPools(pools, ({ used }) => used),
    formatPools(pools, ({ free }) => free),
    String(attachments),
    formatFile(network),
  ];
}
