import { printable } from "../../output/printable.ts";
import { printStdout } from "../../../ffi/sys/stdio.ts";
import { loadPlugins } from "../../../plugins/registry.ts";
import { findNetwork } from "../../../runtime/networks/find.ts";
import { type InspectedAttachment, type InspectedNetwork, inspectNetwork } from "../../../runtime/networks/inspect.ts";
import { stringifyJson } from "../../../spec/jsonc.ts";
import { DIRECTORY_OPTIONS, NETWORKS_ARGUMENT, PRINT_JSON_OPTION } from "../../arguments/network.ts";
import { confDirectory, log, openRuntime } from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";
import { openScreen, type Screen } from "../../output/screen.ts";
import { alignColumns, formatTable } from "../../output/table.ts";
import { formatCount, formatFile } from "../../output/network.ts";

const ATTACHMENT_HEADER = ["CONTAINER", "INTERFACE", "STATE", "ADDRESSES", "PORTS", "NAMESPACE", "REASON"];
const REQUEST_HEADER = ["PLUGIN", "REQUEST AT ADD"];

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
    const networks = input.words.map((word) =>
      inspectNetwork(runtime, findNetwork(runtime, directory, word, log), log)
    );
    const screen = openScreen(1, context.env);
    printStdout(
      input.has(PRINT_JSON_OPTION.name)
        ? `${stringifyJson(networks, 4)}\n`
        : networks.map((network) => formatNetwork(network, screen)).join("\n"),
    );
  },
};
export default inspect;

function formatNetwork(network: InspectedNetwork, screen: Screen): string {
  const { name, driver, cniVersion, pools, attachments, otherUsers } = network;
  const facts = [
    ["Network", name],
    ["File", formatFile(network)],
    ["Version", cniVersion],
    ["Driver", driver],
    ...pools.map(({ subnets, gateways, used, free }) => [
      "Addresses",
      `${subnets.join(", ")}: ${formatCount(used)} used, ${formatCount(free)} free; ${
        gateways.join(", ")
      } kept for the gateway`,
    ]),
    ...otherUsers.map(({ containerId, ifname, evidence }) => [
      "Also used by",
      `container "${containerId}"${ifname === undefined ? "" : `, "${ifname}"`}: ${evidence}, but no attachment`,
    ]),
  ];
  const requests = network.requests.map(({ type, request }) => [type, stringifyJson(request)]);
  return [
    alignColumns(facts).map((line) => `${printable(line)}\n`).join(""),
    formatTable(REQUEST_HEADER, requests, screen),
    formatTable(ATTACHMENT_HEADER, attachments.map(attachmentRow), screen),
  ].join("\n");
}

function attachmentRow(
  { containerId, ifname, state, addresses, portMappings, netns = "", reason = "" }: InspectedAttachment,
): string[] {
  const ports = portMappings.map(({ hostIP, hostPort, containerPort, protocol = "tcp" }) =>
    `${hostIP ? `${hostIP}:` : ""}${hostPort}->${containerPort}/${protocol}`
  );
  return [containerId, ifname, state, addresses.join(", "), ports.join(", "), netns, reason];
}
