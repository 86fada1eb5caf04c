import { printable, printableLines } from "../../../spec/printable.ts";
import { printStdout } from "../../../ffi/sys/stdio.ts";
import { loadPlugins } from "../../../plugins/registry.ts";
import { describeContainerId, EngineNames, shortContainerId } from "../../../containers/engine_names.ts";
import { findNetwork } from "../../../networks/find.ts";
import {
  type DerivedPluginRequest,
  type InspectedAttachment,
  type InspectedNetwork,
  inspectNetwork,
} from "../../../networks/inspect.ts";
import { stringifyJson } from "../../../spec/jsonc.ts";
import { formatDocument } from "../../output/document.ts";
import { countProblems, DIRECTORY_OPTIONS, NETWORKS_ARGUMENT, PRINT_JSON_OPTION } from "../../arguments/network.ts";
import { confDirectory, log, openRuntime } from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";
import { openScreen, type Screen } from "../../output/screen.ts";
import { formatPairs, formatTable } from "../../output/table.ts";
import { formatCount, formatFile } from "../../output/network.ts";

const ATTACHMENT_HEADER = ["NAME", "CONTAINER", "INTERFACE", "STATE", "ADDRESSES", "PORTS", "NAMESPACE", "REASON"];

const inspect: Command = {
  name: "inspect",
  summary: "show a network: its file, what its plugins get, and what is attached with which ports",
  arguments: [NETWORKS_ARGUMENT],
  options: [PRINT_JSON_OPTION, ...DIRECTORY_OPTIONS],
  examples: [{ command: "cni network inspect default --json", about: "the built-in network, for programs" }],
  async run(input, context) {
    const runtime = openRuntime(input, context);
    await loadPlugins();
    const directory = confDirectory(input, context);
    const problems = countProblems();
    const names = new EngineNames();
    const networks = input.words.map((word) =>
      inspectNetwork(runtime, findNetwork(runtime, directory, word, log), names, problems.report)
    );
    const screen = openScreen(1, context.env);
    printStdout(
      input.has(PRINT_JSON_OPTION.name)
        ? formatDocument(networks)
        : networks.map((network) => formatNetwork(network, screen)).join("\n"),
    );
    return problems.exitStatus();
  },
};
export default inspect;

function formatNetwork(network: InspectedNetwork, screen: Screen): string {
  const { name, driver, cniVersion, pools, attachments, otherUsers } = network;
  const facts: [string, string][] = [
    ["Network", name],
    ["File", formatFile(network)],
    ["Version", cniVersion],
    ["Driver", driver],
    ...pools.map(({ subnets, gateways, used, free }): [string, string] => [
      "Addresses",
      `${subnets.join(", ")}: ${formatCount(used)} used, ${formatCount(free)} free; ${
        gateways.join(", ")
      } kept for the gateway`,
    ]),
    ...otherUsers.map(({ containerId, name, ifname, evidence }): [string, string] => [
      "Also used by",
      `container "${describeContainerId(containerId, name)}"${
        ifname === undefined ? "" : `, "${ifname}"`
      }: ${evidence}, but no attachment`,
    ]),
  ];
  return [
    formatPairs(facts, screen.columns).map((line) => `${printable(line)}\n`).join(""),
    ...network.requests.map((request) => formatRequest(request, screen)),
    formatTable(ATTACHMENT_HEADER, attachments.map(attachmentRow), screen),
  ].join("\n");
}

/** Breaks no line: people copy it. */
function formatRequest({ type, request }: DerivedPluginRequest, { style }: Screen): string {
  return `${style("bold", printable(`${type} gets at ADD`))}\n${printableLines(stringifyJson(request, 2))}\n`;
}

function attachmentRow(
  { containerId, name, ifname, state, addresses, portMappings, netns = "", reason = "" }: InspectedAttachment,
): string[] {
  const id = name === undefined ? containerId : shortContainerId(containerId);
  const ports = portMappings.map(({ hostIP, hostPort, containerPort, protocol = "tcp" }) =>
    `${hostIP ? `${hostIP}:` : ""}${hostPort}->${containerPort}/${protocol}`
  );
  return [name ?? "", id, ifname, state, addresses.join(", "), ports.join(", "), netns, reason];
}
