import type { BoxRole, Topology, TopologyBox, Wire } from "./topology.ts";
import { wrapWords } from "./wrap.ts";

const LABEL_CHARACTERS = 60;

const FILLS: Readonly<Record<BoxRole, string>> = {
  uplink: "#fdf1de",
  device: "#e3effc",
  container: "#ffffff",
  table: "#f7f5fb",
};
const BAD = "#d01f1f";
const PUBLISHED = "#c2410c";
const WIRE = "#5b6572";

/**
 * Makes a graph for Graphviz: boxes are nodes, wires are edges.
 *
 * @see https://graphviz.org/doc/info/lang.html
 */
export function formatDot({ uplinks, devices, containers, tables }: Topology): string {
  const hasCalls = containers.some(({ rows }) => rows.some(({ wire }) => wire?.from === "outside"));
  const statements = [
    ...uplinks.map((box, i) => nodeText(`uplink${i}`, box)),
    ...devices.map((box, i) => nodeText(`device${i}`, box)),
    ...containers.map((box, i) => nodeText(`container${i}`, box)),
    ...tables.map((box, i) => nodeText(`table${i}`, box)),
    ...hasCalls ? ['outside [shape=plaintext, style=""]'] : [],
    ...uplinks.flatMap((_, i) =>
      devices.flatMap(({ isRouted }, j) => isRouted ? [`uplink${i} -> device${j} [dir=none, style=dotted]`] : [])
    ),
    ...containers.flatMap(({ rows }, i) =>
      rows.flatMap(({ texts: [text = ""], wire }) => wire ? [wireText(wire, `container${i}`, text)] : [])
    ),
  ];
  return [
    "digraph cni {",
    "  rankdir=LR;",
    '  node [shape=box, style="filled,rounded", fontname="monospace", fontsize=10];',
    '  edge [fontname="monospace", fontsize=9];',
    ...statements.map((statement) => `  ${statement};`),
    "}\n",
  ].join("\n");
}

function nodeText(id: string, { role, isBroken, rows }: TopologyBox): string {
  const border = isBroken ? `, color="${BAD}", penwidth=2` : "";
  const lines = rows.flatMap(({ texts }) => wrapWords(texts, LABEL_CHARACTERS));
  const label = lines.map((line) => `${escapeLabel(line)}\\l`).join("");
  return `${id} [label="${label}", fillcolor="${FILLS[role]}"${border}]`;
}

function wireText({ from, label, isBroken }: Wire, container: string, row: string): string {
  const style = isBroken ? `style=dashed, color="${BAD}"` : `color="${from === "outside" ? PUBLISHED : WIRE}"`;
  return from === "outside"
    ? `outside -> ${container} [label="${escapeLabel(`${label} → ${row}`)}", ${style}]`
    : `device${from} -> ${container} [label="${escapeLabel(label)}", dir=none, ${style}]`;
}

/** `\l` ends a line and aligns it to the left. Labels have such escapes, and entities as in HTML. */
const escapeLabel = (text: string): string => text.replaceAll("&", "&amp;").replace(/["\\]/g, "\\$&");
