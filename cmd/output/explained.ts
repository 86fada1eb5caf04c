import type { ExplainedKey, ExplainedPlugin } from "../../runtime/schema/explain.ts";
import type { Screen } from "./screen.ts";
import { alignColumns, formatTable } from "./table.ts";

const INDENT = "  ";
/** Of lines in a file or a pipe. */
const MAX_COLUMNS = 100;

export function formatExplainedPlugin({ plugin, about, example, keys }: ExplainedPlugin, screen: Screen): string {
  const rows = keys.map(({ key, type, default: byDefault = "required" }) => [key, type, byDefault]);
  return [
    `${screen.style("bold", plugin)}: ${about}.\n`,
    `${JSON.stringify(example, null, 2)}\n`,
    ...rows.length > 0 ? [formatTable(["KEY", "TYPE", "DEFAULT"], rows, screen)] : [],
    `"cni explain ${plugin}.KEY" explains a key, also of every plugin: dns, capabilities, ipam.type.\n`,
  ].join("\n");
}

/** A key, and the keys in it. */
export function formatExplainedKeys(plugin: string, keys: readonly ExplainedKey[], screen: Screen): string {
  return keys.map((explained) => `${keyLines(plugin, explained, screen).join("\n")}\n`).join("\n");
}

function keyLines(plugin: string, explained: ExplainedKey, screen: Screen): string[] {
  const { key, type, default: byDefault, meaning, example, deprecated, parity, since } = explained;
  const facts = [
    ["type", type],
    ["default", byDefault ?? "none: the key is required"],
    ...example === undefined ? [] : [["example", JSON.stringify(example)]],
    ...deprecated === undefined ? [] : [["deprecated", deprecated]],
    ...parity === undefined ? [] : [["Go plugin", parity]],
    ...since === undefined ? [] : [["since", since]],
  ];
  const width = Math.min(screen.columns ?? MAX_COLUMNS, MAX_COLUMNS) - INDENT.length;
  const text = Bun.wrapAnsi(meaning, width).split("\n");
  return [screen.style("bold", `${plugin}.${key}`), ...[...text, ...alignColumns(facts)].map((line) => INDENT + line)];
}
