import { formatJson, formatKeyExample, isKeyFromCaller } from "../../../plugins/lib/docs/format_json.ts";
import type { KeyDocs, PluginDocs } from "../../../plugins/lib/docs/plugin_docs.ts";
import type { AnyPlugin } from "../../../plugins/lib/protocol/context.ts";
import { markdownTable } from "../harness/markdown.ts";

export interface DocumentedPlugin {
  readonly plugin: AnyPlugin;
  readonly docs: PluginDocs;
}

const SINCE = "Every key exists since version 0.1.0, unless its entry names another.\n";
const GENERATED = "<!-- Made by scripts/docs from docs.ts in the plugin's folder. Do not edit. -->\n";

export const folderOf = (name: string): string => name.replaceAll("-", "_");

export function pluginPage(
  { plugin: { name, about }, docs: { example, keys, absent = {}, differences } }: DocumentedPlugin,
): string {
  const absentKeys = Object.entries(absent).map(([key, reason]) => `\`${key}\` is not read: ${reason}.`);
  const paths = Object.keys(keys);
  return page(name, [
    `${about}.\n`,
    "As an entry of `plugins` in a network's configuration:\n",
    `\`\`\`json\n${formatJson(example)}\n\`\`\`\n`,
    ...keySection("Keys", keys, paths.filter((path) => !isKeyFromCaller(path))),
    ...keySection("Keys of `runtimeConfig`, `args` and CNI_ARGS", keys, paths.filter(isKeyFromCaller)),
    "[Keys of every plugin](common.md)\n",
    SINCE,
    ...differenceSection("Differences from the Go plugin", [...differences, ...absentKeys]),
    "[Differences of every plugin](common.md#differences-from-the-go-plugins)\n",
  ]);
}

export function commonPage(keys: Readonly<Record<string, KeyDocs>>, differences: readonly string[]): string {
  return page("Every plugin", [
    "Each plugin also has a [page of its own](../../README.md#plugins).\n",
    SINCE,
    ...keySection("Keys", keys, Object.keys(keys)),
    ...differenceSection("Differences from the Go plugins", differences),
  ]);
}

const page = (title: string, parts: readonly string[]): string => [`# ${title}\n`, GENERATED, ...parts].join("\n");

function keySection(title: string, keys: Readonly<Record<string, KeyDocs>>, paths: readonly string[]): string[] {
  if (paths.length === 0) return [];
  const notation = "`LIST[].KEY` is a key of each object in a list.\n";
  const parityNote = '"Parity" compares a key with the Go plugin; without it, the key works as there.\n';
  return [
    `## ${title}\n`,
    ...paths.some((path) => path.includes("[]")) ? [notation] : [],
    ...paths.some((path) => keys[path]!.parity !== undefined) ? [parityNote] : [],
    paths.map((path) => keyEntry(path, keys[path]!)).join("\n"),
    "",
  ];
}

const differenceSection = (title: string, differences: readonly string[]): string[] => [
  `## ${title}\n`,
  differences.map((text) => `- ${text}`).join("\n") || "None of its own.",
  "",
];

function keyEntry(path: string, { type, default: byDefault, meaning, example, since, parity }: KeyDocs): string {
  const facts = [
    `Type: ${type}`,
    byDefault === undefined ? "Required" : `Default: ${byDefault}`,
    ...example === undefined ? [] : [`Example: \`${formatKeyExample(path, example)}\``],
    ...since === undefined ? [] : [`Since ${since}`],
    ...parity === undefined ? [] : [`Parity: ${parity}`],
  ];
  return `- **\`${path}\`**: ${meaning}\n  ${facts.map((fact) => `${fact}.`).join(" ")}`;
}

/** docs/parity.md: what becomes of each key of the Go plugins. */
export function parityPage(common: Readonly<Record<string, KeyDocs>>, plugins: readonly DocumentedPlugin[]): string {
  const sections = [
    paritySection("[Every plugin](plugins/common.md)", common, {}, ""),
    ...plugins.map(({ plugin: { name }, docs }) =>
      paritySection(`[${name}](plugins/${name}.md)`, docs.keys, docs.absent ?? {}, `plugins/${folderOf(name)}/`)
    ),
  ];
  return `# Parity with the Go plugins\n\n${GENERATED}
Every key of the Go plugins 1.9, with its tests. "yes" means that it has the same effect here. A test compares this page
with the keys that the plugins read.

${sections.join("\n")}`;
}

function paritySection(
  title: string,
  keys: Readonly<Record<string, KeyDocs>>,
  absent: Readonly<Record<string, string>>,
  folder: string,
): string {
  const testsOf = (tests: readonly string[]) => tests.map((test) => `\`${testPath(test, folder)}\``).join(" ");
  const rows = [
    ...Object.entries(keys).map(([path, { parity = "yes", tests }]) => [`\`${path}\``, parity, testsOf(tests)]),
    ...Object.entries(absent).map(([path, reason]) => [`\`${path}\``, `no: ${reason}`, ""]),
  ];
  const table = rows.length === 0 ? "No keys of its own.\n" : markdownTable(["key", "here", "tests"], rows);
  return `## ${title}\n\n${table}`;
}

/** Where a test stands that documentation names, from the root of the repository. */
export const testPath = (test: string, folder: string): string => test.includes("/") ? test : `${folder}${test}`;

export function pluginTable(plugins: readonly DocumentedPlugin[]): string {
  return markdownTable(
    ["plugin", "what it does"],
    plugins.map(({ plugin: { name, about } }) => [`[\`${name}\`](docs/plugins/${name}.md)`, about]),
  );
}

/** The README's first sentence counts the plugins. */
export const withPluginCount = (page: string, count: number): string =>
  page.replace(/\b\d+ plugins\b/, `${count} plugins`);

/** Replaces the text between `<!-- NAME… -->` and `<!-- /NAME -->`. @throws {Error} if they are missing */
export function withGenerated(page: string, name: string, text: string): string {
  const [before, begin, rest] = page.split(new RegExp(`^(<!-- ${name}\\b.*-->)$`, "m"));
  const end = `<!-- /${name} -->`;
  const after = rest?.split(end)[1];
  if (after === undefined) throw new Error(`There is no "<!-- ${name} -->" with a "${end}" behind it`);
  return `${before}${begin}\n\n${text.trimEnd()}\n\n${end}${after}`;
}
