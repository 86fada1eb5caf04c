/** The JSON Schema and lint say the same, as a validator reads the schema. */
import { beforeAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import { builtinDocs, loadPluginDocs } from "../../plugins/docs_registry.ts";
import { findPlugin, isIpamPlugin, loadPlugins, pluginNames } from "../../plugins/registry.ts";
import type { JsonObject, Schema } from "../../spec/schema.ts";
import { shapeOf } from "../../spec/unknown_keys.ts";
import examples from "../../testdata/spec/examples.json";
import foreignSchema from "../../testdata/spec/network-config.schema.json";
import { useDirectory } from "../../testing/directory.ts";
import { loadFixtures, type PluginFixture } from "../../testing/fixture.ts";
import { lintFiles } from "../lint/lint.ts";
import { LINT_RULES } from "../lint/rules.ts";
import { conflistSchema, pluginObjectSchema } from "./conflist_schema.ts";
import { jsonSchemaOf } from "./json_schema.ts";
import { VALUE_DEFINITIONS } from "./value_schemas.ts";

const root = useDirectory("cni-schema-");
const ajv = new Ajv2020({ strict: true, strictTypes: false, strictRequired: false, validateFormats: false });
let validate: ValidateFunction;
let fixtures: Readonly<Record<string, PluginFixture>>;

beforeAll(async () => {
  await Promise.all([loadPlugins(), loadPluginDocs()]);
  fixtures = await loadFixtures();
  validate = ajv.compile(conflistSchema());
});

/** Whether lint finds values that no ADD accepts: the order of plugins, for example, is none. */
function isLinted(document: unknown): boolean {
  const path = join(root, "10-web.conflist");
  writeFileSync(path, JSON.stringify(document));
  return lintFiles([path], { pluginDirectories: [] }).problems.every(({ rule }) => rule !== "invalid-value");
}

/** Configurations about which both do not say the same. */
function disagreements(documents: readonly unknown[]): unknown[] {
  return documents.filter((document) => validate(document) !== isLinted(document));
}

const networkOf = (...plugins: readonly object[]) => ({ cniVersion: "1.1.0", name: "web", plugins });

test("both say the same of the specification's examples", () => {
  const configurations = (examples as readonly { readonly value: JsonObject }[]).map(({ value }) => value)
    .filter((value) => "name" in value && ("plugins" in value || "type" in value));
  expect(configurations.length).toBeGreaterThan(20);
  expect(disagreements(configurations)).toEqual([]);
  const refused = configurations.filter((value) => !validate(value));
  // No program supports the version 0.1 of these two.
  expect(refused.map(({ cniVersion }): unknown => cniVersion)).toEqual(["0.1", "0.1"]);
});

/** Relations between keys or within texts, which a JSON Schema cannot say. Lint refuses these. */
const RELATIONS: Readonly<Record<string, readonly object[]>> = {
  bandwidth: [{ ingressBurst: null }, { ingressRate: 0 }, { ingressBurst: 34359738368 }],
  bridge: [{ hairpinMode: true, promiscMode: true }],
  dummy: [{ ipam: { type: "" } }],
  "host-device": [{ device: null }, { device: "" }],
  portmap: [{ conditionsV4: ["-j", "ACCEPT"] }],
  sbr: [{ gateways: ["10.5.0.1", "10.5.0.2"] }],
  static: [{ routes: [{ dst: "::/0", gw: "10.5.0.1" }] }],
  tuning: [
    { sysctl: { "kernel.hostname": "x" } },
    { sysctl: { "net/../kernel/hostname": "x" } },
    { sysctl: { "net.core.somaxconn\0": "1" } },
    { sysctl: { "net.core.somaxconn": "1", "net/core/somaxconn": "1" } },
  ],
};

test("both say the same of 100 configurations, but for relations between keys", () => {
  const changes = pluginNames().flatMap((name) => {
    const working = fixtures[name]!.typical.config("/tmp") as Record<string, object>;
    const type = isIpamPlugin(name) ? "bridge" : name;
    return [{}, ...fixtures[name]!.invalid].map((change) => ({
      name,
      change,
      document: networkOf({ ...withChange(working, change as Record<string, object>), type }),
    }));
  });
  const others = [
    ...pluginNames().map((name) => networkOf(builtinDocs(name)!.example)),
    ...LINT_RULES.flatMap(({ bad, good }) => [bad, good].flatMap(({ files }) => Object.values(files)))
      .filter((text) => !text.includes("//") && text.includes('"web",')).map((text) => JSON.parse(text)),
  ];
  expect(changes.length).toBeGreaterThan(100);
  expect(disagreements(others)).toEqual([]);
  for (const name of pluginNames()) {
    const disputed = changes.filter((each) => each.name === name && disagreements([each.document]).length > 0);
    const known = (RELATIONS[name] ?? []).map((change) => isIpamPlugin(name) ? { ipam: change } : change);
    expect({ name, disputed: disputed.map(({ change }) => change) }).toEqual({ name, disputed: known });
    expect(disputed.filter(({ document }) => !validate(document))).toEqual([]);
  }
});

/** Keys that replace others, also within `ipam`. */
function withChange(config: Record<string, object>, change: Record<string, object | null>): object {
  const ipam = change.ipam instanceof Object ? { ipam: { ...config.ipam, ...change.ipam } } : {};
  return { ...config, ...change, ...ipam };
}

const VALUES: readonly unknown[] = [
  ...[null, true, false, 0, 1, -1, 0.5, 31, 32, 254, 4094, 4095, 65535, 65536, 2147483647, 2147483648, 4294967295],
  ...["", " ", "\0", "/", ".", "..", "a", "a/b", "a b", "-j", "true", "1400", "eth0", "all", "x".repeat(15)],
  ...["x".repeat(16), "x".repeat(65), "10.1.0.2", "10.1.0.2/16", "10.1.0.0/33", "010.1.0.2", "256.0.0.1", "1.2.3"],
  ...["::", "::1", "fd00::1/64", "fd00::/129", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "1::2::3", "::ffff:1.2.3.4", ":1"],
  ...[
    "02:00:00:00:00:01",
    "01:00:5e:00:00:01",
    "00:00:00:00:00:00",
    "02-00-00-00-00-01",
    "0200.0000.0001",
    "02:0:0:0:0:1",
  ],
  ...["15Mbit", "2MB/s", "1.5Gbit", "10", "10mbps", "bridge", "BRIDGE", "l2", "tcp", "TCP", "nftables", "INPUT"],
  ...["/sys/devices/x", "/sys/class", "0000:00:1f.6", {}, [], [{}], [""], [1], ["::1"], { a: 1 }, { a: "b" }],
];

/** Every schema of one value in a plugin's configuration. */
function leaves(schema: Schema<unknown>, path: string): (readonly [path: string, schema: Schema<unknown>])[] {
  const shape = shapeOf(schema);
  if (!shape) return [[path, schema]];
  return Object.entries(shape).flatMap(([key, member]) => leaves(member, path ? `${path}.${key}` : key));
}

test.each(pluginNames())("each value of %s is accepted by both or by neither", (name) => {
  for (const [path, schema] of leaves(findPlugin(name)!.config, "")) {
    const isValid = ajv.compile({ ...jsonSchemaOf(schema, {}), $defs: VALUE_DEFINITIONS });
    const accepted = VALUES.filter((value) => {
      try {
        schema.parse(value ?? undefined, "");
        return true;
      } catch {
        return false;
      }
    });
    expect({ path, accepted: VALUES.filter((value) => isValid(value)) }).toEqual({ path, accepted });
  }
});

test("a configuration that the schema accepts fits the published schema too", () => {
  const isForeignValid = ajv.compile(foreignSchema);
  const refused = pluginNames().flatMap((name) => {
    const document = { cniVersion: "1.1.0", name: "web", ...builtinDocs(name)!.example };
    expect(validate(document)).toBe(true);
    return isForeignValid(document) ? [] : [{ name, errors: isForeignValid.errors }];
  });
  expect(refused).toEqual([]);
  expect(foreignSchema.examples.filter((document: unknown) => !validate(document))).toEqual([]);
});

test.each(pluginNames())(
  "the schema of %s alone accepts its example, and refuses wrong values",
  (name) => {
    const isValid = ajv.compile(pluginObjectSchema(name));
    const { example } = builtinDocs(name)!;
    expect(isValid(example) || isValid.errors).toBe(true);
    expect(isValid({ ...example, capabilities: { mac: "yes" } })).toBe(false);
    expect(isValid({ ...example, type: 1 })).toBe(false);
  },
);

test("the schema has every documented key", () => {
  for (const name of pluginNames()) {
    const defs = pluginObjectSchema(name).$defs as Record<string, { properties: object }>;
    const known = Object.keys({ ...defs.plugin!.properties, ...defs[name]!.properties });
    const documented = Object.keys(builtinDocs(name)!.keys).map((path) => path.split(/[.[ ]/)[0]!);
    expect(documented.filter((key) => key !== "CNI_ARGS" && !known.includes(key))).toEqual([]);
  }
});
