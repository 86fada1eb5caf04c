/**
 * Keys that nobody reads and that look like one that a plugin would: a list with them is legal, and not what was meant.
 *
 * `cni run status` looks for them, which is asked whether a network will do, and `cni run add` if it failed. To do it with every ADD would
 * take a twentieth of one. Of the list's own keys another case is another key, as they are matched exactly.
 *
 * @module
 */
import { locate, parseJson } from "../spec/jsonc.ts";
import type { NetworkConfigList, PluginEntry } from "../spec/network_config_list.ts";
import { dnsSchema } from "../spec/result.ts";
import {
  anything,
  isJsonObject,
  type JsonObject,
  knownKeys,
  memberPath,
  type Schema,
  type Shape,
} from "../spec/schema.ts";
import { suggestion } from "../spec/suggest.ts";

/** The keys of a list itself (SPEC §Configuration format). */
const LIST_KEYS = [
  ...["cniVersion", "cniVersions", "name", "plugins"],
  ...["disableCheck", "disableGC", "loadOnlyInlinedPlugins"],
];

/** What a plugin reads; nothing for one that is not built in. */
export type FindConfigSchema = (type: string) => Schema<unknown> | undefined;

/**
 * What is to be said of the keys of a list that nobody reads and that differ little from one that the plugin of their place would: `network
 * "web": plugins[0].isGatway is not read; did you mean "isGateway"? (web.conflist:4:7)`. Of others nothing: they may be for somebody else.
 */
export function findUnknownKeys(list: NetworkConfigList, findConfigSchema: FindConfigSchema): string[] {
  const document = parseJson(list.text) as JsonObject;
  // A file may also hold nothing but a plugin's object.
  const isList = Object.hasOwn(document, "plugins");
  const unknownKeys = [
    ...isList ? findUnknownListKeys(document) : [],
    ...list.plugins.flatMap((entry, i) =>
      searchNode(shapeOfEntry(entry, findConfigSchema), entry.raw, isList ? `plugins[${i}]` : "")
    ),
  ];
  return unknownKeys.map(({ path, hint }) => {
    const { line, column } = list.source ? locate(list.text, path) ?? {} : {};
    const location = line ? ` (${list.source}:${line}:${column})` : "";
    return `network "${list.name}": ${path} is not read${hint}${location}`;
  });
}

/** Keys of the list itself that nobody reads, and which one each differs little from. */
export function findUnknownListKeys(document: JsonObject): UnknownKey[] {
  return Object.keys(document).filter((key) => !LIST_KEYS.includes(key)).flatMap((key) => {
    const hint = suggestion(key, LIST_KEYS);
    return hint ? [{ path: memberPath("", key), hint }] : [];
  });
}

/** What the configuration of every plugin may have (SPEC §Configuration format, CONVENTIONS.md). */
export function commonShape(): Shape {
  return {
    ...{
      cniVersion: anything,
      cniVersions: anything,
      name: anything,
      type: anything,
      prevResult: anything,
      dns: dnsSchema,
    },
    ...{ capabilities: anything, runtimeConfig: anything, args: anything, ipam: knownKeys({ type: anything }) },
    ...{ "cni.dev/valid-attachments": anything, "cni.dev/attachments": anything },
  };
}

/** All that the plugin, its IPAM plugin and the runtime read. */
function shapeOfEntry({ type, ipamType = "" }: PluginEntry, findConfigSchema: FindConfigSchema): Shape {
  const pluginShape = shapeOf(findConfigSchema(type));
  const ipamShape = shapeOf(findConfigSchema(ipamType));
  const runtimeConfig = { ...shapeOf(ipamShape?.runtimeConfig), ...shapeOf(pluginShape?.runtimeConfig) };
  return {
    ...commonShape(),
    ...pluginShape,
    capabilities: knownKeys(runtimeConfig),
    runtimeConfig: knownKeys(runtimeConfig),
    ipam: knownKeys({ ...shapeOf(pluginShape?.ipam), ...shapeOf(ipamShape?.ipam), type: anything }),
  };
}

/** One key. */
export interface UnknownKey {
  /** Where it stands: `plugins[0].isGatway`. */
  readonly path: string;
  /** `; did you mean "isGateway"?` */
  readonly hint: string;
}

function searchNode(shape: Shape, node: unknown, parentPath: string): UnknownKey[] {
  if (Array.isArray(node)) return node.flatMap((element, i) => searchNode(shape, element, `${parentPath}[${i}]`));
  if (!isJsonObject(node)) return [];
  const knownKeys = Object.keys(shape);
  return Object.entries(node).flatMap(([key, value]) => {
    const path = memberPath(parentPath, key);
    const knownKey = knownKeys.find((element) => element.toLowerCase() === key.toLowerCase());
    if (knownKey !== undefined) {
      const childShape = shapeOf(shape[knownKey]);
      return childShape ? searchNode(childShape, value, path) : [];
    }
    const hint = suggestion(key, knownKeys);
    return hint ? [{ path, hint }] : [];
  });
}

/** The keys of an object, or of the objects in a list. */
export function shapeOf(schema: Schema<unknown> | undefined): Shape | undefined {
  const inner = schema?.inner;
  return schema?.shape ?? (inner && shapeOf(typeof inner === "function" ? inner() : inner));
}
