/** Every ADD searches configurations for keys that nobody reads. */
import { memberPath } from "./jsonc.ts";
import type { PluginConfig } from "./plugin_config.ts";
import { dnsSchema } from "./result.ts";
import { anything, findKey, isJsonObject, knownKeys, type Schema, type Shape } from "./schema.ts";
import { suggestion } from "./suggest.ts";

export interface UnknownKey {
  /** The place of the key: `plugins[0].isGatway`. */
  readonly path: string;
  /** Holds `; did you mean "isGateway"?`, or nothing. */
  readonly hint: string;
}

export function describeUnknownKey({ path, hint }: UnknownKey): string {
  return `${path} is not read${hint}`;
}

export type FindConfigSchema = (type: string) => Schema<unknown> | undefined;

/**
 * @param path of the object: `plugins[0]`
 * @param isProgram whether a program is called, which may read other keys than the built-in plugin
 */
export function findUnknownPluginKeys(
  { type, ipamType, raw }: Pick<PluginConfig, "type" | "ipamType" | "raw">,
  findConfigSchema: FindConfigSchema,
  isProgram: (type: string) => boolean,
  path = "",
): UnknownKey[] {
  const pluginShape = shapeOf(findConfigSchema(type));
  if (!pluginShape) return searchNode(raw, longCommonKeys(), path, true);
  const ipamSchema = ipamType === undefined ? knownKeys({}) : findConfigSchema(ipamType);
  const shape = mergeShapes(
    mergeShapes({ ...commonConfigShape(), ...MULTUS_KEYS }, pluginShape),
    shapeOf(ipamSchema) ?? KEYS_OF_ANY_IPAM,
  );
  const ipamPath = memberPath(path, findKey(raw, "ipam") ?? "ipam");
  return searchNode(raw, { ...shape, capabilities: shape.runtimeConfig! }, path, false).filter((unknownKey) =>
    unknownKey.hint || !isProgram(ipamType !== undefined && unknownKey.path.startsWith(ipamPath) ? ipamType : type)
  );
}

/** @param plugins those that declare the capability */
export function findUnknownArgumentKeys(
  plugins: readonly Pick<PluginConfig, "type" | "ipamType">[],
  findConfigSchema: FindConfigSchema,
  isProgram: (type: string) => boolean,
  capability: string,
  value: unknown,
): UnknownKey[] {
  const types = plugins.flatMap(({ type, ipamType = [] }) => [type].concat(ipamType));
  const shapes = types.map((type) => shapeOf(shapeOf(findConfigSchema(type))?.runtimeConfig)?.[capability]);
  const shape = shapes.map(shapeOf).filter((known) => known !== undefined).reduce(mergeShapes, {});
  if (Object.keys(shape).length === 0) return [];
  // Programs may read other keys: then only keys similar to a known one count.
  return searchNode(value, shape, capability, types.some((type) => isProgram(type) || !findConfigSchema(type)));
}

export function findUnknownKeysAmong(keys: readonly string[], known: readonly string[]): UnknownKey[] {
  return keys.filter((key) => !known.includes(key) && !isForPeople(key)).map((key) => ({
    path: memberPath("", key),
    hint: suggestion(key, known),
  }));
}

export function isForPeople(key: string): boolean {
  return key.startsWith("_") || key.startsWith("x-") || key === "$schema";
}

/** A list has the keys of its elements. */
export function shapeOf(schema: Schema<unknown> | undefined): Shape | undefined {
  const inner = schema?.inner;
  return schema?.shape ?? (inner && shapeOf(typeof inner === "function" ? inner() : inner));
}

/** Every plugin has these (SPEC §Configuration format, CONVENTIONS.md). */
export function commonConfigShape(): Shape {
  return {
    cniVersion: anything,
    cniVersions: anything,
    name: anything,
    type: anything,
    prevResult: anything,
    dns: dnsSchema,
    ipam: knownKeys({ type: anything }),
    capabilities: anything,
    runtimeConfig: knownKeys({}),
    args: anything,
    "cni.dev/valid-attachments": anything,
    "cni.dev/attachments": anything,
  };
}

/** Multus writes both for the first plugin of any network. */
const MULTUS_KEYS: Shape = { deviceID: anything, pciBusID: anything };

/** Short words resemble too many keys of unknown plugins. */
function longCommonKeys(): Shape {
  return Object.fromEntries(
    Object.keys(commonConfigShape()).filter((key) => key.length > 6).map((key) => [key, anything]),
  );
}

const KEYS_OF_ANY_IPAM: Shape = { ipam: anything, runtimeConfig: anything };

function mergeShapes(first: Shape, second: Shape): Shape {
  const merged: Record<string, Schema<unknown>> = { ...first };
  for (const key in second) {
    const firstChild = shapeOf(first[key]);
    const secondChild = shapeOf(second[key]);
    merged[key] = firstChild && secondChild ? knownKeys(mergeShapes(firstChild, secondChild)) : second[key]!;
  }
  return merged;
}

/** @param isShared programs may read other keys here: only keys similar to a known one count */
function searchNode(node: unknown, shape: Shape, path: string, isShared: boolean): UnknownKey[] {
  if (Array.isArray(node)) {
    return node.flatMap((element, i) => searchNode(element, shape, `${path}[${i}]`, isShared));
  }
  if (!isJsonObject(node)) return [];
  const unknownKeys: UnknownKey[] = [];
  for (const key in node) {
    const knownKey = findKey(shape, key);
    if (knownKey === undefined) {
      const hint = isForPeople(key) ? "" : suggestion(key, Object.keys(shape));
      if (hint || !isShared && !isForPeople(key)) unknownKeys.push({ path: memberPath(path, key), hint });
    } else if (findKey(node, knownKey) !== key) {
      unknownKeys.push({ path: memberPath(path, key), hint: `, since "${findKey(node, knownKey)}" is there too` });
    } else {
      const childShape = shapeOf(shape[knownKey]);
      // Both hold requests to all plugins (CONVENTIONS.md).
      const isChildShared = isShared || knownKey === "args" || knownKey === "runtimeConfig";
      if (childShape) unknownKeys.push(...searchNode(node[key], childShape, memberPath(path, key), isChildShared));
    }
  }
  return unknownKeys;
}
