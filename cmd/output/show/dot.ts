import type { OutlineNode, OutlineRole } from "./outline.ts";
import { lineTexts, wrapWords } from "./wrap.ts";

/** In characters. */
const LABEL_WIDTH = 60;

const COLOURS: Readonly<Record<Exclude<OutlineRole, "line">, string>> = {
  host: "#e8eaed",
  uplink: "#fde7c8",
  device: "#d7e8fb",
  port: "#eef3f8",
  container: "#dcf3dc",
  table: "#ece6f5",
};

/**
 * A graph for Graphviz: boxes are nodes, their lines are labels.
 *
 * @see https://graphviz.org/doc/info/lang.html
 */
export function formatDot(root: OutlineNode): string {
  const statements: string[] = [];
  addNode(root, statements, { next: 0 });
  return [
    "digraph cni {",
    "  rankdir=LR;",
    '  node [shape=box, style="filled,rounded", fontname="monospace", fontsize=10];',
    "  edge [dir=none];",
    ...statements.map((statement) => `  ${statement};`),
    "}\n",
  ].join("\n");
}

/** @returns the id of the node */
function addNode(outline: OutlineNode, statements: string[], ids: { next: number }): string {
  const id = `n${ids.next++}`;
  const role = outline.role as keyof typeof COLOURS;
  const border = outline.health === "bad" ? ', color="#c5221f", penwidth=2' : "";
  statements.push(`${id} [label=${quotedLabel(boxLines(outline))}, fillcolor="${COLOURS[role]}"${border}]`);
  for (const child of outline.children) {
    if (child.role !== "line") statements.push(`${id} -> ${addNode(child, statements, ids)}`);
  }
  return id;
}

function boxLines({ kind, name, details, children }: OutlineNode): string[] {
  const title = wrapWords([`${kind} ${name}`.trim(), ...details], LABEL_WIDTH);
  return [
    ...title,
    ...children.filter(({ role }) => role === "line").flatMap((child) => lineTexts(child, LABEL_WIDTH)),
  ];
}

/** `\l` ends a line and aligns it to the left. Labels have such escapes, and entities as in HTML. */
function quotedLabel(lines: readonly string[]): string {
  const escaped = lines.map((line) => line.replaceAll("&", "&amp;").replace(/["\\]/g, "\\$&"));
  return `"${escaped.map((line) => `${line}\\l`).join("")}"`;
}
