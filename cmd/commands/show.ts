import { printStdout } from "../../ffi/sys/stdio.ts";
import { EngineNames, type NamedAttachment } from "../../containers/engine_names.ts";
import { withoutLoopbacks } from "../../networks/loopbacks.ts";
import type { NodeTree } from "../../inspect/show/node_tree.ts";
import { formatDocument } from "../output/document.ts";
import { netnsPath } from "../arguments/path.ts";
import { DIRECTORY_OPTIONS } from "../arguments/network.ts";
import { cacheDirectory, confDirectory, JSON_OPTION, log, openRuntime } from "../arguments/runtime.ts";
import type { Command } from "../command.ts";
import type { CliContext } from "../../program/start.ts";
import type { OptionSpec, ParsedOptions } from "../options.ts";
import { openScreen } from "../output/screen.ts";

const FORMATS = ["text", "json", "dot", "svg"] as const;
const FORMAT_OPTION: OptionSpec = {
  name: "format",
  value: "FORMAT",
  choices: FORMATS,
  help: "text (default), json, dot (for Graphviz) or svg (a picture)",
};
const RULES_OPTION: OptionSpec = { name: "rules", help: "also rules without a packet count, and sets" };

const NO_CONTAINER =
  'No container is attached; to attach a namespace "web": cni netns add web && cni run add default web';

const show: Command = {
  name: "show",
  summary: "show what exists: uplinks, bridges, containers, addresses, ports, rules",
  description:
    `The tree has the host's uplinks, bridges and other devices, their ports, and the tables of rules. Behind ports
are containers with addresses, routes and published ports. Of pods, it tells whether policies isolate them; which policy
decides between two ends, "cni policy test" tells. The command looks only: nothing changes, no plugin runs.
Rules of "inet cni" and "bridge cni" have no counters. Rules in tables of iptables have.`,
  arguments: [{
    name: "NETWORK|NETNS|CONTAINER",
    help: "a network; a namespace, by name or path; a container, by name, address, id or begin of its id",
    optional: true,
  }],
  options: [
    FORMAT_OPTION,
    { ...JSON_OPTION, help: `the same as --format json; ${JSON_OPTION.help}` },
    RULES_OPTION,
    ...DIRECTORY_OPTIONS,
  ],
  examples: [
    { command: "cni show web", about: 'what belongs to the network, namespace or container "web"' },
    { command: "cni show --format svg > containers.svg", about: "a picture for a report" },
    { command: "cni show --format dot > containers.dot", about: "a graph for Graphviz: dot -Tpdf containers.dot" },
  ],
  async run(input, context) {
    const tree = await gather(input, context);
    printStdout(await format(tree, input, context));
    if (tree.devices.length + tree.separate.length > 0) return;
    const [word] = input.words;
    log(word === undefined ? NO_CONTAINER : `Nothing is attached there: ${JSON.stringify(word)}`);
  },
};
export default show;

async function gather(input: ParsedOptions, context: CliContext): Promise<NodeTree> {
  const { gatherNodeTree } = await import("../../inspect/show/gather.ts");
  const runtime = openRuntime(input, context);
  const attachments = new EngineNames().addTo(runtime.attachments());
  const forPeople = wantedFormat(input) === "json" ? (all: readonly NamedAttachment[]) => all : withoutLoopbacks;
  const [word] = input.words;
  if (word === undefined) {
    const { nodesFilePath, readNodesFile } = await import("../../cluster/stored_nodes.ts");
    const nodes = readNodesFile(nodesFilePath(cacheDirectory(input, context)), log)?.nodes ?? [];
    return gatherNodeTree(forPeople(attachments), { showsOtherPorts: true, nodes });
  }
  const [{ selectShown }, { loadPlugins }] = await Promise.all([
    import("../../inspect/show/select.ts"),
    import("../../plugins/registry.ts"),
  ]);
  await loadPlugins();
  const options = { netnsPath: netnsPath(word, context), confDirectory: confDirectory(input, context) };
  const selection = selectShown(word, attachments, options);
  return gatherNodeTree(forPeople(selection.attachments), selection);
}

function wantedFormat(input: ParsedOptions): string {
  return input.find(FORMAT_OPTION.name) ?? (input.has(JSON_OPTION.name) ? "json" : "text");
}

async function format(tree: NodeTree, input: ParsedOptions, context: CliContext): Promise<string> {
  const wanted = wantedFormat(input);
  if (wanted === "json") return formatDocument(tree);
  const withRules = input.has(RULES_OPTION.name);
  if (wanted === "text") {
    const [{ outlineOf }, { formatTextTree }] = await Promise.all([
      import("../output/show/outline.ts"),
      import("../output/show/text.ts"),
    ]);
    return formatTextTree(outlineOf(tree, withRules), openScreen(1, context.env));
  }
  const { topologyOf } = await import("../output/show/topology.ts");
  const topology = topologyOf(tree, withRules);
  return wanted === "dot"
    ? (await import("../output/show/dot.ts")).formatDot(topology)
    : (await import("../output/show/svg.ts")).formatSvg(topology);
}
