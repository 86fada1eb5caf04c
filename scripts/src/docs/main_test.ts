/** Checks that the plugins' docs.ts are true, and that the pages made of them are not stale. */
import { beforeAll, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { commonKeys } from "../../../plugins/lib/docs/common_docs.ts";
import type { KeyDocs, PluginDocs } from "../../../plugins/lib/docs/plugin_docs.ts";
import { isJsonObject, type JsonObject, type Schema, type Shape } from "../../../spec/schema.ts";
import { commonConfigShape, shapeOf } from "../../../spec/unknown_keys.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { generatedFiles, loadDocumentedPlugins } from "./main.ts";
import { type DocumentedPlugin, folderOf, pluginTable, testPath } from "./pages.ts";

let plugins: DocumentedPlugin[];
beforeAll(async () => {
  plugins = await loadDocumentedPlugins();
});

test("each plugin documents every key that it reads, no other, and tests that speak of it", () => {
  expect(plugins.flatMap(docsProblems)).toEqual([]);
  expect(commonKeyProblems(commonKeys)).toEqual([]);
});

test("the pages are those that scripts/docs makes", () => {
  for (const [path, text] of Object.entries(generatedFiles(plugins))) {
    const file = readFileSync(join(REPOSITORY_ROOT, path), "utf8");
    if (file !== text) throw new Error(`${path} is stale: run scripts/docs`);
  }
});

test("the README's table of plugins fits 115 columns", () => {
  for (const line of pluginTable(plugins).split("\n")) expect(line.length, line).toBeLessThanOrEqual(115);
});

/** The documentation of a plugin with something changed in it. */
function changed(name: string, change: (keys: Record<string, KeyDocs>) => Partial<PluginDocs> | void): string[] {
  const { plugin, docs } = plugins.find((each) => each.plugin.name === name)!;
  const keys: Record<string, KeyDocs> = { ...docs.keys };
  const others = change(keys);
  return docsProblems({ plugin, docs: { ...docs, keys, ...others } });
}

test("what is not true of a plugin is said", () => {
  expect(changed("bridge", (keys) => void delete keys.isGateway)).toEqual(["bridge reads isGateway, which is missing"]);
  expect(changed("bridge", (keys) => void delete keys["vlanTrunk[].minID"]))
    .toEqual(["bridge reads vlanTrunk.minID, which is missing"]);
  expect(changed("bridge", (keys) => void (keys.isGatway = keys.isGateway!))).toContain("bridge has no isGatway");
  expect(changed("static", (keys) => void delete keys["CNI_ARGS GATEWAY"]))
    .toEqual(["static reads CNI_ARGS GATEWAY, which is missing"]);
  expect(changed("bridge", () => ({ absent: { mtu: "why" } }))).toEqual(["bridge reads mtu all the same"]);
  const withTests = (...tests: string[]) => (keys: Record<string, KeyDocs>) =>
    void (keys.mtu = { ...keys.mtu!, tests });
  expect(changed("bridge", withTests())).toEqual(["no test of bridge mtu"]);
  expect(changed("bridge", withTests("no_test.ts"))).toEqual(["plugins/bridge/no_test.ts does not exist"]);
  expect(changed("bridge", withTests("plugins/loopback/plugin_test.ts")))
    .toEqual(["plugins/loopback/plugin_test.ts does not speak of mtu"]);
});

test("values that a plugin does not read, or reads otherwise, are said", () => {
  const withKey = (plugin: string, path: string, change: Partial<KeyDocs>) =>
    changed(plugin, (keys) => void (keys[path] = { ...keys[path]!, ...change }));
  expect(withKey("bridge", "mtu", { default: "1500" })).toEqual(["bridge has another default for mtu than 1500"]);
  expect(withKey("host-local", "ipam.dataDir", { default: '"/var/lib"' }))
    .toEqual(['host-local has another default for ipam.dataDir than "/var/lib"']);
  expect(withKey("portmap", "runtimeConfig.portMappings[].protocol", { default: '"udp"' }))
    .toEqual(['portmap has another default for runtimeConfig.portMappings[].protocol than "udp"']);
  expect(withKey("vlan", "vlanId", { type: "VLAN number, 1 to 4095" })).toEqual([
    "vlan does not read 4095 as vlanId: it is VLAN number, 1 to 4095",
    "vlan reads 0 as vlanId: it is VLAN number, 1 to 4095",
  ]);
  expect(withKey("ipvlan", "mode", { type: '"l2" or "l4"' }))
    .toEqual(['ipvlan does not read "l4" as mode: it is "l2" or "l4"']);
  expect(withKey("firewall", "firewalldZone", { type: '"trusted" or "internal"' }))
    .toEqual(['firewall reads "anything-else" as firewalldZone: it is "trusted" or "internal"']);
  expect(withKey("static", "ipam.dns.domain", { type: "boolean" })).toContain(
    "static does not read true as ipam.dns.domain: it is boolean",
  );
  expect(withKey("bridge", "mtu", { example: "1400" })[0])
    .toStartWith("bridge does not read its example of mtu: ");
});

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
  ...args === "all" ? [] : args.map((arg) => `CNI_ARGS ${arg}`),
];

/** `ipam.ranges.subnet` is in `ipam.ranges`, which is in `ipam`; the keys of the conventions have a slash, and dots of their own. */
const parentsOf = (path: string): string[] =>
  path.includes("/") ? [path] : path.split(".").map((_, i, parts) => parts.slice(0, i + 1).join("."));

/** Problems as sentences; none if the documentation is true. */
function docsProblems({ plugin, docs }: DocumentedPlugin): string[] {
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
function commonKeyProblems(keys: Readonly<Record<string, KeyDocs>>): string[] {
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

/** `ipam.ranges[][].subnet` as the path of a key, without regard to lists. */
const withoutBrackets = (path: string): string => path.replaceAll("[]", "");

/** Problems as sentences. */
function schemaProblems(
  name: string,
  schema: Schema<unknown>,
  example: JsonObject,
  keys: Readonly<Record<string, KeyDocs>>,
): string[] {
  const schemas = schemasOf(schema);
  const whole = refusals(schemas, example).map((reason) => `${name} does not read its example: ${reason}`);
  const paths = Object.keys(keys).filter((path) => !path.startsWith("CNI_ARGS "));
  return [...whole, ...paths.flatMap((path) => valueProblems({ name, schemas, example, keys, path }))];
}

/** A schema and those that it is made from: some plugins read a part of their configuration first and the rest later. */
function schemasOf(schema: Schema<unknown>): Schema<unknown>[] {
  const inner = typeof schema.inner === "function" ? schema.inner() : schema.inner;
  return inner ? [schema, ...schemasOf(inner)] : [schema];
}

/** A key of a plugin. */
interface Documented {
  readonly name: string;
  readonly schemas: readonly Schema<unknown>[];
  readonly example: JsonObject;
  readonly keys: Readonly<Record<string, KeyDocs>>;
  readonly path: string;
}

function valueProblems(documented: Documented): string[] {
  const { name, schemas, keys, path } = documented;
  const { type, default: byDefault = "", example } = keys[path]!;
  const refusalsOf = (value: unknown) => refusals(schemas, configurationWith(documented, value));
  const { accepted, refused } = valuesOfType(type);
  return [
    ...example === undefined
      ? []
      : refusalsOf(example).map((reason) => `${name} does not read its example of ${path}: ${reason}`),
    ...accepted.filter((value) => refusalsOf(value).length > 0)
      .map((value) => `${name} does not read ${JSON.stringify(value)} as ${path}: it is ${type}`),
    ...refused.filter((value) => refusalsOf(value).length === 0)
      .map((value) => `${name} reads ${JSON.stringify(value)} as ${path}: it is ${type}`),
    ...isDefault(documented, byDefault) ? [] : [`${name} has another default for ${path} than ${byDefault}`],
  ];
}

/** Values that are the first and last ones of their type, and some that are not of it, as far as the words say it. */
function valuesOfType(type: string): { readonly accepted: readonly unknown[]; readonly refused: readonly unknown[] } {
  const [, min, max] = /\bnumber\b.* (\d+) to (\d+)$/.exec(type) ?? [];
  if (max !== undefined) return { accepted: [+min!, +max], refused: [+min! - 1, +max + 1] };
  const words = /^"\w/.test(type) ? [...type.matchAll(/"([^"]+)"/g)].map(([, word]) => word) : [];
  if (words.length > 0) return { accepted: words, refused: ["anything-else"] };
  if (type === "boolean") return { accepted: [true, false], refused: ["true"] };
  return { accepted: [], refused: [] };
}

/** Whether the plugin reads the same without the key as with its default, where that is a value and not words. */
function isDefault(documented: Documented, byDefault: string): boolean {
  const [json] = /^("[^"]*"|true|false|\d+)(?=$|,)/.exec(byDefault) ?? [];
  if (json === undefined) return true;
  const [present, absent] = [JSON.parse(json), undefined].map((value) => configurationWith(documented, value));
  return documented.schemas.some((schema) => Bun.deepEquals(outcome(schema, present), outcome(schema, absent)));
}

/** The result of the schema; all refusals are equal. */
function outcome(schema: Schema<unknown>, configuration: unknown): unknown {
  try {
    return schema.parse(configuration);
  } catch {
    return "refused";
  }
}

function refusals(schemas: readonly Schema<unknown>[], configuration: unknown): string[] {
  return schemas.flatMap((schema) => {
    try {
      schema.parse(configuration);
      return [];
    } catch (error) {
      return [(error as Error).message];
    }
  });
}

/** The plugin's example with this value of the key, in the example of the object that the key is in. */
function configurationWith({ example, keys, path }: Documented, value: unknown): unknown {
  const objects = Object.keys(keys).filter((other) =>
    keys[other]!.example !== undefined && withoutBrackets(path).startsWith(`${withoutBrackets(other)}.`)
  );
  const inObjects = objects.reduce<unknown>(
    (configuration, object) => withValue(configuration, object.split("."), keys[object]!.example),
    example,
  );
  return withValue(inObjects, path.split("."), value);
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
