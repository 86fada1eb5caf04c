/**
 * Keys that nobody reads and that look like one that a plugin would: a list with them is legal, and not what was meant.
 *
 * `cni run status` looks for them, which is asked whether a network will do, and `cni run add` if it failed. To do it with every ADD would
 * take a twentieth of one.
 *
 * @module
 */
import { locate, parseJson } from "../../plugins/spec/jsonc.ts";
import type { NetworkList, PluginEntry } from "../../plugins/spec/network.ts";
import { dns } from "../../plugins/spec/result.ts";
import {
  anything,
  isJsonObject,
  join,
  type JsonObject,
  type Schema,
  type Shape,
  struct,
} from "../../plugins/spec/schema.ts";
import { suggestion } from "../../plugins/spec/suggest.ts";

/** What a plugin reads; nothing for one that is not built in. */
export type KeysOf = (type: string) => Schema<unknown> | undefined;

/**
 * What is to be said of the keys of a list that nobody reads and that differ little from one that the plugin of their place would: `network
 * "web": plugins[0].isGatway is not read; did you mean "isGateway"? (web.conflist:4:7)`. Of others nothing: they may be for somebody else.
 */
export function findMisspelt(list: NetworkList, keysOf: KeysOf): string[] {
  // A file may also hold nothing but a plugin's object.
  const isList = Object.hasOwn(parseJson(list.text) as JsonObject, "plugins");
  return list.plugins.flatMap((entry, i) =>
    search(shapeFor(entry, keysOf), entry.raw, isList ? `plugins[${i}]` : "").map(({ path, meant }) => {
      const { line, column } = list.source ? locate(list.text, path) ?? {} : {};
      const place = line ? ` (${list.source}:${line}:${column})` : "";
      return `network "${list.name}": ${path} is not read${meant}${place}`;
    })
  );
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

interface Found {
  readonly path: string;
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
