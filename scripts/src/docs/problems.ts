/** What is wrong with a plugin's documentation, beside what the plugin reads and its tests. @module */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { KeyDocs } from "../../../plugins/lib/docs/plugin_docs.ts";
import { commonConfigShape, shapeOf } from "../../../spec/unknown_keys.ts";
import type { Schema, Shape } from "../../../spec/schema.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { type DocumentedPlugin, folderOf, testPath } from "./pages.ts";
import { schemaProblems, withoutBrackets } from "./schema_problems.ts";

/** Paths of all keys of an object without the `[]` of lists, and the objects themselves. */
function pathsOf(shape: Shape = {}, parent = ""): string[] {
  return Object.entries(shape).flatMap(([key, schema]) => {
    const path = parent ? `${parent}.${key}` : key;
    return [path, ...pathsOf(shapeOf(schema as Schema<unknown>), path)];
  });
}

const commonPaths = (): string[] => [...pathsOf(commonConfigShape()), "CNI_ARGS IgnoreUnknown"];

const pathsReadBy = ({ config, args = [] }: DocumentedPlugin["plugin"]): string[] => [
  ...pathsOf(shapeOf(config)),
  ...args.map((arg) => `CNI_ARGS ${arg}`),
];

/** `ipam.ranges.subnet` is in `ipam.ranges`, which is in `ipam`; the keys of the conventions have a slash, and dots of their own. */
const parentsOf = (path: string): string[] =>
  path.includes("/") ? [path] : path.split(".").map((_, i, parts) => parts.slice(0, i + 1).join("."));

/** Problems as sentences; none if the documentation is true. */
export function docsProblems({ plugin, docs }: DocumentedPlugin): string[] {
  const { name, config } = plugin;
  const absent = Object.keys(docs.absent ?? {}).map(withoutBrackets);
  return [
    ...keyProblems(name, docs.keys, pathsReadBy(plugin), commonPaths()),
    ...absent.filter((path) => pathsReadBy(plugin).includes(path)).map((path) => `${name} reads ${path} all the same`),
    ...testProblems(name, docs.keys, `plugins/${folderOf(name)}/`),
    ...schemaProblems(name, config, docs.example, docs.keys),
  ];
}

/** The same of the keys that every plugin has. */
export function commonKeyProblems(keys: Readonly<Record<string, KeyDocs>>): string[] {
  return [...keyProblems("every plugin", keys, commonPaths(), []), ...testProblems("every plugin", keys, "")];
}

function keyProblems(
  name: string,
  keys: Readonly<Record<string, KeyDocs>>,
  read: readonly string[],
  alsoRead: readonly string[],
): string[] {
  const documented = Object.keys(keys).map(withoutBrackets);
  const covered = new Set(documented.flatMap(parentsOf));
  return [
    ...read.filter((path) => !covered.has(path)).map((path) => `${name} reads ${path}, which is missing`),
    ...documented.filter((path) => ![...read, ...alsoRead].includes(path)).map((path) => `${name} has no ${path}`),
  ];
}

/** That a test is good, nobody but a reader can tell; that it speaks of the key, this can. */
function testProblems(name: string, keys: Readonly<Record<string, KeyDocs>>, folder: string): string[] {
  return Object.entries(keys).flatMap(([path, { tests }]) => {
    if (tests.length === 0) return [`no test of ${name} ${path}`];
    const files = tests.map((test) => testPath(test, folder));
    const absent = files.filter((file) => !existsSync(join(REPOSITORY_ROOT, file)));
    if (absent.length > 0) return absent.map((file) => `${file} does not exist`);
    const texts = files.map((file) => readFileSync(join(REPOSITORY_ROOT, file), "utf8"));
    const words = withoutBrackets(path).split(/[ .]/).filter((word) => word !== "cni");
    const isSpokenOf = (word: string) => texts.some((text) => new RegExp(`(?<!\\w)${word}(?!\\w)`, "i").test(text));
    return words.every(isSpokenOf) ? [] : [`${files.join(" ")} does not speak of ${path}`];
  });
}
