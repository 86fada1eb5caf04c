/** What is wrong with a plugin's documentation, beside what the plugin reads and its tests. @module */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { KeyDocs } from "../../../plugins/lib/docs/plugin_docs.ts";
import { commonShape, shapeOf } from "../../../runtime/unknown_keys.ts";
import { isJsonObject, type JsonObject, type Schema, type Shape } from "../../../spec/schema.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { type DocumentedPlugin, folderOf, testPath } from "./pages.ts";

/** Paths of all keys of an object without the `[]` of lists, and the objects themselves. */
function pathsOf(shape: Shape = {}, parent = ""): string[] {
  return Object.entries(shape).flatMap(([key, schema]) => {
    const path = parent ? `${parent}.${key}` : key;
    return [path, ...pathsOf(shapeOf(schema as Schema<unknown>), path)];
  });
}

const commonPaths = (): string[] => [...pathsOf(commonShape()), "CNI_ARGS IgnoreUnknown"];

const pathsReadBy = ({ config, args = [] }: DocumentedPlugin["plugin"]): string[] => [
  ...pathsOf(shapeOf(config)),
  ...args.map((arg) => `CNI_ARGS ${arg}`),
];

const withoutBrackets = (path: string): string => path.replaceAll("[]", "");

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
    ...exampleProblems(name, config, docs.example, docs.keys),
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

/** The plugin reads its example, and also with the example of each key in the place of what stands there. */
function exampleProblems(
  name: string,
  schema: Schema<unknown>,
  example: JsonObject,
  keys: Readonly<Record<string, KeyDocs>>,
): string[] {
  const paths = Object.keys(keys).filter((path) => keys[path]!.example !== undefined && !path.startsWith("CNI_ARGS "));
  const isIn = (path: string, object: string) => withoutBrackets(path).startsWith(`${withoutBrackets(object)}.`);
  const configurations = paths.map((path): [string, unknown] => [
    path,
    [...paths.filter((other) => isIn(path, other)), path].reduce<unknown>(
      (configuration, each) => withValue(configuration, each.split("."), keys[each]!.example),
      example,
    ),
  ]);
  return [["the whole", example] as [string, unknown], ...configurations].flatMap(([what, configuration]) => {
    try {
      for (const each of schemasOf(schema)) each.parse(configuration);
      return [];
    } catch (error) {
      return [`${name} does not read its example of ${what}: ${(error as Error).message}`];
    }
  });
}

/** A schema and those that it is made from: some plugins read a part of their configuration first and the rest later. */
function schemasOf(schema: Schema<unknown>): Schema<unknown>[] {
  const inner = typeof schema.inner === "function" ? schema.inner() : schema.inner;
  return inner ? [schema, ...schemasOf(inner)] : [schema];
}

/** `node` with a value at a path, whose parts are keys with a `[]` for each list. */
function withValue(node: unknown, [part = "", ...rest]: readonly string[], value: unknown): unknown {
  const key = withoutBrackets(part);
  const depth = (part.length - key.length) / 2;
  const object = isJsonObject(node) ? node : {};
  const inner = rest.length === 0 ? value : withValue(elementOf(object[key], depth), rest, value);
  return { ...object, [key]: inList(inner, depth) };
}

const elementOf = (node: unknown, depth: number): unknown =>
  depth === 0 ? node : elementOf(Array.isArray(node) ? node[0] : undefined, depth - 1);

const inList = (value: unknown, depth: number): unknown => depth === 0 ? value : [inList(value, depth - 1)];
