import { builtinDocs } from "../../plugins/docs_registry.ts";
import { commonKeys } from "../../plugins/lib/docs/common_docs.ts";
import type { PluginDocs } from "../../plugins/lib/docs/plugin_docs.ts";
import type { AnyPlugin } from "../../plugins/lib/protocol/context.ts";
import { findPlugin, isIpamPlugin, pluginNames } from "../../plugins/registry.ts";
import { pluginEntrySchema } from "../../spec/network_config_list.ts";
import { shapeOf } from "../../spec/unknown_keys.ts";
import { VERSIONS } from "../../spec/version.ts";
import { findContradiction } from "../lint/validate_plugin.ts";
import { documentationOf, propertiesOf } from "./json_schema.ts";
import { type JsonSchema, NETWORK_NAME_EXPECTATION, schemaOfExpectation, VALUE_DEFINITIONS } from "./value_schemas.ts";

const DIALECT = "https://json-schema.org/draft/2020-12/schema";
const NUMERIC_VERSION = { type: "string", pattern: "^[0-9]+(\\.[0-9]+){1,2}$" };
const FLAG = { anyOf: [{ type: "boolean" }, { type: "string", pattern: "^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$" }] };

/**
 * The JSON Schema of a network's file: a list of plugins, or one plugin's object. Keys of other programs are allowed.
 *
 * `loadPlugins()` and `loadPluginDocs()` come first.
 */
export function conflistSchema(): JsonSchema {
  return {
    $schema: DIALECT,
    title: "CNI network configuration",
    type: "object",
    required: ["name"],
    properties: {
      name: {
        ...schemaOfExpectation(NETWORK_NAME_EXPECTATION),
        ...documentationOf(commonKeys.name),
      },
      cniVersion: { type: "string", ...documentationOf(commonKeys.cniVersion) },
      cniVersions: { type: "array", items: NUMERIC_VERSION, ...documentationOf(commonKeys.cniVersions) },
    },
    anyOf: KNOWN_VERSION,
    if: { required: ["type"], not: { required: ["plugins"] } },
    then: { $ref: "#/$defs/plugin" },
    else: LIST,
    $defs: definitions(pluginNames()),
  };
}

/** @param name of a built-in plugin */
export function pluginObjectSchema(name: string): JsonSchema {
  return {
    $schema: DIALECT,
    title: `CNI plugin ${JSON.stringify(name)}`,
    allOf: [{ $ref: "#/$defs/plugin" }, { $ref: `#/$defs/${name}` }],
    $defs: definitions(pluginNames().filter((other) => other === name || isIpamPlugin(other))),
  };
}

/** The newest known version counts; without any, it is 0.1.0. */
const KNOWN_VERSION: readonly JsonSchema[] = [
  { required: ["cniVersion"], properties: { cniVersion: { enum: ["", ...VERSIONS] } } },
  { required: ["cniVersions"], properties: { cniVersions: { contains: { enum: VERSIONS } } } },
  {
    not: {
      anyOf: [{ required: ["cniVersion"] }, {
        required: ["cniVersions"],
        properties: { cniVersions: { minItems: 1 } },
      }],
    },
  },
];

const LIST: JsonSchema = {
  properties: {
    plugins: { type: "array", minItems: 1, maxItems: 1000, items: { $ref: "#/$defs/plugin" } },
    disableCheck: { ...FLAG, description: "Makes CHECK succeed without calling a plugin." },
    disableGC: { ...FLAG, description: "Makes GC do nothing, for lists that share a name." },
    loadOnlyInlinedPlugins: { ...FLAG, description: "Ignores plugins in files of their own." },
  },
};

function definitions(names: readonly string[]): JsonSchema {
  return {
    plugin: anyPluginSchema(names),
    ...VALUE_DEFINITIONS,
    ...Object.fromEntries(names.map((name) => [name, ownKeysSchema(findPlugin(name)!, builtinDocs(name)!)])),
  };
}

/** Keys of every plugin, and those that the plugins' names select. */
function anyPluginSchema(names: readonly string[]): JsonSchema {
  const isNamed = (name: string) => ({ type: "object", required: ["type"], properties: { type: { const: name } } });
  return {
    type: "object",
    required: ["type"],
    properties: propertiesOf(shapeOf(pluginEntrySchema)!, commonKeys),
    allOf: names.map((name) => ({
      if: isIpamPlugin(name) ? { required: ["ipam"], properties: { ipam: isNamed(name) } } : isNamed(name),
      then: { $ref: `#/$defs/${name}` },
    })),
  };
}

function ownKeysSchema(definition: AnyPlugin, { keys, example }: PluginDocs): JsonSchema {
  const shape = shapeOf(definition.config) ?? {};
  const capabilities = Object.keys(shapeOf(shape.runtimeConfig) ?? {});
  const isNeeded = (key: string) => {
    const { [key]: _, ...rest } = example;
    return keys[key]?.default === undefined && findContradiction(definition, rest) !== undefined;
  };
  const required = Object.keys(example).filter((key) => key !== "type" && isNeeded(key));
  return {
    description: `${definition.about}.`,
    type: "object",
    properties: {
      ...propertiesOf(shape, keys),
      ...capabilities.length > 0 && { capabilities: capabilitiesSchemaOf(capabilities) },
    },
    ...required.length > 0 && { required, allOf: required.map(notEmpty) },
    examples: [example],
  };
}

/** `null` and an empty string count as absent. */
const notEmpty = (key: string): JsonSchema => ({ properties: { [key]: { not: { enum: [null, ""] } } } });

/** Others are allowed, and not read. */
function capabilitiesSchemaOf(names: readonly string[]): JsonSchema {
  return { properties: Object.fromEntries(names.map((name) => [name, { type: ["boolean", "null"] }])) };
}
