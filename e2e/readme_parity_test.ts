/**
 * The table "Parity" in the README is true: it names every field that a plugin reads and none besides, and tests that are there and speak of
 * them. That they are good tests, nobody but a reader can tell.
 */
import { beforeAll, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { findPlugin, hasPlugin, loadPlugins, pluginNames } from "../plugins/registry.ts";
import type { Schema, Shape } from "../spec/schema.ts";
import { REPOSITORY_ROOT } from "../scripts/src/repository.ts";
import { commonShape, shapeOf } from "../runtime/unknown_keys.ts";

beforeAll(() => loadPlugins());
const README = readFileSync(join(REPOSITORY_ROOT, "README.md"), "utf8");

interface Row {
  readonly plugin: string;
  /** Paths such as `vlanTrunk.id` and `CNI_ARGS MAC`. */
  readonly fields: readonly string[];
  readonly here: string;
  readonly files: readonly string[];
}

/** The rows of the table, names that begin with a dot made whole. */
function rowsOf(readme: string): Row[] {
  const [, section = ""] = readme.split("\n## Parity\n");
  const lines = section.split("\n## ")[0]!.split("\n").filter((line) => line.startsWith("|")).slice(2);
  return lines.map((line) => {
    const [plugin, fields, here, files] = line.slice(1, -1).split("|").map((cell) => cell.trim());
    return { plugin: plugin!, fields: whole(wordsOf(fields!)), here: here!, files: wordsOf(files!) };
  });
}

const wordsOf = (cell: string): string[] =>
  [...cell.matchAll(/`([^`]+)`/g)].map(([, word]) => word!.replaceAll("[]", ""));

/** A `.id` belongs to the last name without a dot in front. */
function whole(names: readonly string[]): string[] {
  let object = "";
  return names.map((name) => name.startsWith(".") ? object + name : object = name);
}

/** All paths of an object's keys, the objects themselves among them. */
function pathsOf(shape: Shape = {}, at = ""): string[] {
  return Object.entries(shape).flatMap(([key, each]) => {
    const path = at ? `${at}.${key}` : key;
    return [path, ...pathsOf(shapeOf(each as Schema<unknown>), path)];
  });
}

function fieldsOf(plugin: string): string[] {
  if (plugin === "all") return [...pathsOf(commonShape()), "CNI_ARGS IgnoreUnknown"];
  const { config, args = [] } = findPlugin(plugin)!;
  return [...pathsOf(shapeOf(config)), ...args.map((arg) => `CNI_ARGS ${arg}`)];
}

/** A path and the objects that it is in. */
const chainOf = (path: string): string[] =>
  path.includes("/") ? [path] : path.split(".").map((_, i, parts) => parts.slice(0, i + 1).join("."));

function untruths(readme: string): string[] {
  const rows = rowsOf(readme);
  return [...["all", ...pluginNames()].flatMap((name) => untruthsOf(name, rows)), ...rows.flatMap(unprovenOf)];
}

function untruthsOf(plugin: string, rows: readonly Row[]): string[] {
  const own = rows.filter((row) => row.plugin === plugin);
  if (own.length === 0) return [`${plugin} has no row in README.md, table "Parity"`];
  const isAbsent = ({ here }: Row) => here.startsWith("no");
  const named = own.filter((row) => !isAbsent(row)).flatMap(({ fields }) => fields.flatMap(chainOf));
  const real = fieldsOf(plugin);
  const common = fieldsOf("all");
  return [
    ...real.filter((field) => !named.includes(field)).map((field) => `${plugin} reads ${field}, which is missing`),
    ...named.filter((field) => ![...real, ...common].includes(field)).map((field) => `${plugin} has no ${field}`),
    ...own.filter(isAbsent).flatMap(({ fields }) => fields).filter((field) => real.includes(field))
      .map((field) => `${plugin} reads ${field} all the same`),
  ];
}

/** What no test of a row speaks of; what is not here needs none. */
function unprovenOf({ plugin, fields, here, files }: Row): string[] {
  if (here.startsWith("no")) return hasPlugin(plugin) || plugin === "dhcp" ? [] : [`there is no plugin ${plugin}`];
  const paths = files.map((file) => join(REPOSITORY_ROOT, file));
  const absent = paths.filter((path) => !existsSync(path)).map((path) => `${path} does not exist`);
  if (files.length === 0) absent.push(`no test of ${plugin} ${fields.join()}`);
  const texts = paths.filter((path) => existsSync(path)).map((path) => readFileSync(path, "utf8"));
  const words = (field: string) => field.split(/[ .]/).filter((word) => word !== "cni");
  const spoken = (word: string) => texts.some((text) => new RegExp(`(?<!\\w)${word}(?!\\w)`, "i").test(text));
  return [
    ...absent,
    ...fields.filter((field) => !words(field).every(spoken))
      .map((field) => `${files.join()} does not speak of ${field}`),
  ];
}

test("the parity table names every field that a plugin reads, no other, and tests that speak of it", () => {
  expect(untruths(README)).toEqual([]);
});

test.each<[string, string, string]>([
  ["`isGateway` ", "", "bridge reads isGateway, which is missing"],
  ["`.minID` ", "", "bridge reads vlanTrunk.minID, which is missing"],
  ["`isGateway`", "`isGateway` `isGatway`", "bridge has no isGatway"],
  ["`CNI_ARGS GATEWAY`", "", "static reads CNI_ARGS GATEWAY, which is missing"],
  ["`DPDKMode`", "`device`", "host-device reads device all the same"],
  [
    "`plugins/vrf/plugin_vm_test.ts`",
    "`plugins/vrf/plugin_test.ts`",
    `${join(REPOSITORY_ROOT, "plugins/vrf/plugin_test.ts")} does not exist`,
  ],
  [
    "`plugins/vrf/plugin_vm_test.ts`",
    "`plugins/sbr/plugin_test.ts`",
    "plugins/sbr/plugin_test.ts does not speak of vrfname",
  ],
  ["`plugins/vrf/plugin_vm_test.ts`", "", "no test of vrf vrfname,table"],
])("with %s changed to %j it would not be true: %s", (before, after, untruth) => {
  const [head, table] = README.split("\n## Parity\n");
  expect(untruths([head, table!.replace(before, after)].join("\n## Parity\n"))).toContain(untruth);
});

test("a plugin without a row is noticed", () => {
  expect(untruths(README.replaceAll(/^\| sbr .*\n/gm, ""))).toContain('sbr has no row in README.md, table "Parity"');
});

/** Plugins that the table "Plugins" leaves out. */
function undescribed(readme: string): string[] {
  return pluginNames().filter((name) => !readme.includes(`\n| \`${name}\``))
    .map((name) => `${name} has no row in README.md, table "Plugins"`);
}

test("the table of plugins names all of them", () => {
  expect(undescribed(README)).toEqual([]);
  expect(undescribed(README.replace(/^\| `sbr` .*\n/m, ""))).toEqual(['sbr has no row in README.md, table "Plugins"']);
});
