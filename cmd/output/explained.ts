import type { ExplainedKey, ExplainedPlugin } from "../../networks/schema/explain.ts";
import type { Screen } from "./screen.ts";
import { formatPairs, formatTable } from "./table.ts";

const INDENT = "  ";
// The width of lines in a file or a pipe.
const MAX_COLUMNS = 100;

export function formatExplainedPlugin({ plugin, about, example, keys }: ExplainedPlugin, screen: Screen): string {
  const rows = keys.map(({ key, type, default: byDefault = "required" }) => [key, type, byDefault]);
  const more = `"cni explain ${plugin}.KEY" explains a key, also of every plugin: dns, capabilities, ipam.type.`;
  const fitted = (text: string) => screen.columns === undefined ? text : Bun.wrapAnsi(text, screen.columns);
  return [
    `${fitted(`${screen.style("bold", plugin)}: ${about}.`)}\n`,
    `${JSON.stringify(example, null, 2)}\n`,
    ...rows.length > 0 ? [formatTable(["KEY", "TYPE", "DEFAULT"], rows, screen)] : [],
    `${fitted(more)}\n`,
  ].join("\n");
}

export function formatExplainedKeys(plugin: string, keys: readonly ExplainedKey[], screen: Screen): string {
  return keys.map((explained) => `${keyLines(plugin, explained, screen).join("\n")}\n`).join("\n");
}

function keyLines(plugin: string, explained: ExplainedKey, screen: Screen): string[] {
  const { key, type, default: byDefault, meaning, example, deprecated, parity, since } = explained;
  const facts: [string, string][] = [
    ["type", type],
    ["default", byDefault ?? "none: the key is required"],
    ...optionalPair("example", example === undefined ? undefined : JSON.stringify(example)),
    ...optionalPair("deprecated", deprecated),
    ...optionalPair("Go plugin", parity),
    ...optionalPair("since", since),
  ];
  const width = Math.min(screen.columns ?? MAX_COLUMNS, MAX_COLUMNS) - INDENT.length;
  const text = Bun.wrapAnsi(meaning, width).split("\n");
  const lines = [...text, ...formatPairs(facts, screen.columns === undefined ? undefined : width)];
  return [screen.style("bold", `${plugin}.${key}`), ...lines.map((line) => INDENT + line)];
}

const optionalPair = (name: string, value: string | undefined): [string, string][] =>
  value === undefined ? [] : [[name, value]];
