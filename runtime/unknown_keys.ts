/**
 * Keys that nobody reads and that look like one that a plugin would: a list with them is legal, and not what was meant.
 *
 * `cni run status` looks for them, which is asked whether a network will do, and `cni run add` if it failed. To do it with every ADD would
 * take a twentieth of one. Of the list's own keys another case is another key, as they are matched exactly.
 *
 * @module
 */
import { locate, parseJson } from "../spec/jsonc.ts";
import type { NetworkList, PluginEntry } from "../spec/network_config_list.ts";
import { dns } from "../spec/result.ts";
import { anything, isJsonObject, join, type JsonObject, type Schema, type Shape, struct } from "../spec/schema.ts";
import { suggestion } from "../spec/suggest.ts";

/** The keys of a list itself (SPEC §Configuration format). */
const LIST_KEYS = [
  ...["cniVersion", "cniVersions", "name", "plugins"],
  ...["disableCheck", "disableGC", "loadOnlyInlinedPlugins"],
];

/** What a plugin reads; nothing for one that is not built in. */
export type KeysOf = (type: string) => Schema<unknown> | undefined;

/**
 * What is to be said of the keys of a list that nobody reads and that differ little from one that the plugin of their place would: `network
 * "web": plugins[0].isGatway is not read; did you mean "isGateway"? (web.conflist:4:7)`. Of others nothing: they may be for somebody else.
 */
export function findMisspelt(list: NetworkList, keysOf: KeysOf): string[] {
  const document = parseJson(list.text) as JsonObject;
  // A file may also hold nothing but a plugin's object.
  const isList = Object.hasOwn(document, "plugins");
  const found = [
    ...isList ? searchList(document) : [],
    ...list.plugins.flatMap((entry, i) => search(shapeFor(entry, keysOf), entry.raw, isList ? `plugins[${i}]` : "")),
  ];
  return found.map(({ path, meant }) => {
    const { line, column } = list.source ? locate(list.text, path) ?? {} : {};
    const place = line ? ` (${list.source}:${line}:${column})` : "";
    return `network "${list.name}": ${path} is not read${meant}${place}`;
  });
}

/** Keys of the list itself that nobody reads, and which one each differs little from. */
export function searchList(document: JsonObject): Found[] {
  return Object.keys(document).filter((key) => !LIST_KEYS.includes(key)).flatMap((key) => {
    const meant = suggestion(key, LIST_KEYS);
    return meant ? [{ path: join("", key), meant }] : [];
  });
}

/** What the configuration of every plugin may have (SPEC §Configuration format, CONVENTIONS.md). */
export function commonKeys(): Shape {
  return {
    ...{ cniVersion: anything, cniVersions: anything, name: anything, type: anything, prevResult: anything, dns },
    ...{ capabilities: anything, runtimeConfig: anything, args: anything, ipam: struct({ type: anything }) },
    ...{ "cni.dev/valid-attachments": anything, "cni.dev/attachments": anything },
  };
}

/** All that the plugin, its IPAM plugin and the runtime read. */
function shapeFor({ type, ipamType = "" }: PluginEntry, keysOf: KeysOf): Shape {
  const own = shapeOf(keysOf(type));
  const ipam = shapeOf(keysOf(ipamType));
  const runtimeConfig = { ...shapeOf(ipam?.runtimeConfig), ...shapeOf(own?.runtimeConfig) };
  return {
    ...commonKeys(),
    ...own,
    capabilities: struct(runtimeConfig),
    runtimeConfig: struct(runtimeConfig),
    ipam: struct({ ...shapeOf(own?.ipam), ...shapeOf(ipam?.ipam), type: anything }),
  };
}

/** One key. */
export interface Found {
  /** Where it stands: `plugins[0].isGatway`. */
  readonly path: string;
  /** `; did you mean "isGateway"?` */
  readonly meant: string;
}

function search(shape: Shape, node: unknown, at: string): Found[] {
  if (Array.isArray(node)) return node.flatMap((each, i) => search(shape, each, `${at}[${i}]`));
  if (!isJsonObject(node)) return [];
  const known = Object.keys(shape);
  return Object.entries(node).flatMap(([key, value]) => {
    const path = join(at, key);
    const name = known.find((each) => each.toLowerCase() === key.toLowerCase());
    if (name !== undefined) {
      const below = shapeOf(shape[name]);
      return below ? search(below, value, path) : [];
    }
    const meant = suggestion(key, known);
    return meant ? [{ path, meant }] : [];
  });
}

/** The keys of an object, or of the objects in a list. */
export function shapeOf(schema: Schema<unknown> | undefined): Shape | undefined {
  const inner = schema?.inner;
  return schema?.shape ?? (inner && shapeOf(typeof inner === "function" ? inner() : inner));
}
