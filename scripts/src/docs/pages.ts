/** The pages that follow from the plugins' own documentation. @module */
import type { KeyDocs, PluginDocs } from "../../../plugins/lib/docs/plugin_docs.ts";
import type { AnyPlugin } from "../../../plugins/lib/protocol/context.ts";

/** A plugin and what it says of itself. */
export interface DocumentedPlugin {
  readonly plugin: AnyPlugin;
  readonly docs: PluginDocs;
}

const GENERATED = "<!-- Made by scripts/docs from docs.ts in the plugin's folder. Do not edit. -->\n";

/** The folder of a plugin below plugins/. */
export const folderOf = (name: string): string => name.replaceAll("-", "_");

/** docs/plugins/NAME.md */
export function pluginPage(
  { plugin: { name, about }, docs: { example, keys, absent = {}, differences } }: DocumentedPlugin,
): string {
  const absentKeys = Object.entries(absent).map(([key, reason]) => `- \`${key}\` is not read: ${reason}.`);
  return [
    `# ${name}\n`,
    GENERATED,
    `${about}.\n`,
    "```json",
    JSON.stringify(example, undefined, 2),
    "```\n",
    "## Keys\n",
    Object.keys(keys).length === 0 ? "None of its own.\n" : Object.entries(keys).map(keyEntry).join("\n"),
    "",
    "## Differences from the Go plugin\n",
    [...differences.map((text) => `- ${text}`), ...absentKeys].join("\n") || "None.",
    "",
  ].join("\n");
}

function keyEntry([path, { type, default: byDefault, meaning, example, since, parity }]: [string, KeyDocs]): string {
  const facts = [
    byDefault === undefined ? "required" : `default: ${byDefault}`,
    ...since === undefined ? [] : [`since ${since}`],
    ...parity === undefined ? [] : [`beside the Go plugin: ${parity}`],
  ];
  const shown = example === undefined ? "" : `\n  Example: \`${JSON.stringify(example)}\``;
  return `- **\`${path}\`** (${type}; ${facts.join("; ")}): ${meaning}${shown}`;
}

/** docs/parity.md: what becomes of each key of the Go plugins. */
export function parityPage(common: Readonly<Record<string, KeyDocs>>, plugins: readonly DocumentedPlugin[]): string {
  const sections = [
    section("Every plugin", common, {}, ""),
    ...plugins.map(({ plugin: { name }, docs }) =>
      section(`[${name}](plugins/${name}.md)`, docs.keys, docs.absent ?? {}, `plugins/${folderOf(name)}/`)
    ),
  ];
  return `# Parity with the Go plugins\n\n${GENERATED}
Every key of the Go plugins 1.9, what it means here, and the tests of it. "yes" means: as there. A test compares this
page with what the plugins read. There is no \`dhcp\` yet: it needs a process that outlives a call.

${sections.join("\n")}`;
}

function section(
  title: string,
  keys: Readonly<Record<string, KeyDocs>>,
  absent: Readonly<Record<string, string>>,
  folder: string,
): string {
  const rows = [
    ...Object.entries(keys).map(([path, { parity = "yes", tests }]) => [
      `\`${path}\``,
      parity,
      tests.map((test) => `\`${testPath(test, folder)}\``).join(" "),
    ]),
    ...Object.entries(absent).map(([path, reason]) => [`\`${path}\``, `no: ${reason}`, ""]),
  ];
  return `## ${title}\n\n${
    rows.length === 0 ? "No keys of its own.\n" : markdownTable(["key", "here", "tests"], rows)
  }`;
}

/** Where a test stands that documentation names, from the root of the repository. */
export const testPath = (test: string, folder: string): string => test.includes("/") ? test : `${folder}${test}`;

/** The README's table of plugins. */
export function pluginTable(plugins: readonly DocumentedPlugin[]): string {
  return markdownTable(
    ["plugin", "what it does"],
    plugins.map(({ plugin: { name, about } }) => [`[\`${name}\`](docs/plugins/${name}.md)`, about]),
  );
}

function markdownTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((title, i) => Math.max(title.length, ...rows.map((row) => row[i].length)));
  const line = (cells: readonly string[]) => `| ${cells.map((cell, i) => cell.padEnd(widths[i])).join(" | ")} |\n`;
  return [line(head), line(widths.map((width) => "-".repeat(width))), ...rows.map(line)].join("");
}

/**
 * A page with the text between its two lines `<!-- NAME… -->` and `<!-- /NAME -->` made anew.
 *
 * @throws {Error} if the page does not have them
 */
export function withGenerated(page: string, name: string, text: string): string {
  const [before, begin, rest] = page.split(new RegExp(`^(<!-- ${name}\\b.*-->)$`, "m"));
  const end = `<!-- /${name} -->`;
  const after = rest?.split(end)[1];
  if (after === undefined) throw new Error(`There is no "<!-- ${name} -->" with a "${end}" behind it`);
  return `${before}${begin}\n\n${text.trimEnd()}\n\n${end}${after}`;
}
