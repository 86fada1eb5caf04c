/**
 * Parses configurations, and names the path of what is wrong.
 *
 * Keys match in any case, `null` counts as absent, and unknown keys are kept: existing configurations rely on it. On
 * top of a library, these rules and errors would take as much code.
 *
 * @example
 * ```ts
 * import { schema } from "./mod.ts";
 *
 * const config = schema.object({ mtu: schema.optional(schema.int({ min: 68 })), mode: schema.withDefault(schema.string, "bridge") });
 * console.log(JSON.stringify(config.parse({ MTU: 1400 }))); // {"mtu":1400,"mode":"bridge"}
 * try {
 *   config.parse({ mtu: "1400" });
 * } catch (error) {
 *   console.log((error as Error).message); // Cannot use configuration: mtu must be a whole number of at least 68: got "1400"
 * }
 * ```
 *
 * @module
 */
import { type Cidr, familyOf, type Ip, type Mac, parseCidr, parseIp, parseMac } from "../ffi/address.ts";
import { ConfigError } from "./error.ts";
import { excerpt, JSON_TEXT, memberPath } from "./jsonc.ts";

export { excerpt, memberPath };

/** Reads a JSON node as a `T`. */
export interface Schema<T> {
  /** Reads a node. @throws {ConfigError} naming `path`, the expected and the found value */
  parse(node: unknown, path?: string): T;
  /** Where optional, an empty string means "not set". */
  readonly emptyIsUnset?: boolean;
  /** The schemas of an object's keys. */
  readonly shape?: Readonly<Record<string, Schema<unknown>>>;
  /** The schema of a list's elements or of the wrapped value. */
  readonly inner?: Schema<unknown> | (() => Schema<unknown>);
  /** Marks that `inner` is for the elements. */
  readonly isList?: true;
}

/** A schema whose key may be missing. */
export interface Optional<T> extends Schema<T | undefined> {
  /** Marks the key for {@linkcode ObjectOf}. */
  readonly optional: true;
}

/** What a schema reads: `Infer<typeof string>` is `string`. */
export type Infer<S> = S extends Schema<infer T> ? T : never;

/** Names the keys of an object. */
export type Shape = Readonly<Record<string, Schema<unknown>>>;
type OptionalKeys<S extends Shape> = { [K in keyof S]: S[K] extends Optional<unknown> ? K : never }[keyof S];

/** What an object of this shape holds. */
export type ObjectOf<S extends Shape> = Simplify<
  & { readonly [K in Exclude<keyof S, OptionalKeys<S>>]: Infer<S[K]> }
  & { readonly [K in OptionalKeys<S>]?: Exclude<Infer<S[K]>, undefined> }
>;
type Simplify<T> = { [K in keyof T]: T[K] };

/** A JSON object, as it was read. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** Reads any string, also an empty one. */
export const string: Schema<string> = primitive("a string", isString);

/** A string; where optional, an empty one means "not set". */
export const nonEmptyString: Schema<string> = {
  ...primitive("a non-empty string", (node): node is string => isString(node) && node !== ""),
  emptyIsUnset: true,
};

/** Reads `true` or `false`, but no text. */
export const boolean: Schema<boolean> = primitive("true or false", (node) => typeof node === "boolean");

/** Reads any object with any keys. */
export const jsonObject: Schema<JsonObject> = primitive("an object", isJsonObject);

/** Reads anything, and leaves it unchanged. */
export const anything: Schema<unknown> = { parse: (node) => node };

/** Reads an address with prefix length; host bits are kept. */
export const cidr: Schema<Cidr> = parsedString('a CIDR such as "10.1.0.0/16"', parseCidr);

/** Reads an IP address. An empty one counts as in {@linkcode nonEmptyString}. */
export const ipAddress: Schema<Ip> = {
  ...parsedString('an IP address such as "10.1.0.2"', parseIp),
  emptyIsUnset: true,
};

/** Reads an {@linkcode ipAddress}, also with prefix length. */
export const ipOrCidr: Schema<Ip | Cidr> = {
  ...parsedString(
    'an IP address such as "10.1.0.2" or "10.1.0.2/16"',
    (value): Ip | Cidr => value.includes("/") ? parseCidr(value) : parseIp(value),
  ),
  emptyIsUnset: true,
};

/** Reads a 48-bit address of one interface. An empty one counts as in {@linkcode nonEmptyString}. */
export const mac: Schema<Mac> = {
  ...refine(
    parsedString('a MAC address such as "0a:58:0a:01:00:02"', parseMac),
    "the MAC address of a single interface, neither multicast nor zero",
    // The kernel refuses both without a reason. The first byte's lowest bit marks multicast.
    (value) => (Number.parseInt(value.slice(0, 2), 16) & 1) === 0 && value !== "00:00:00:00:00:00",
  ),
  emptyIsUnset: true,
};

/** Reads a whole number up to 2^53, beyond which digits are lost. */
export function int({ min = Number.MIN_SAFE_INTEGER, max = Number.MAX_SAFE_INTEGER } = {}): Schema<number> {
  const range = () => {
    if (max < Number.MAX_SAFE_INTEGER) return ` from ${min} to ${max}`;
    return min > Number.MIN_SAFE_INTEGER ? ` of at least ${min}` : "";
  };
  return primitive(
    () => `a whole number${range()}`,
    (node): node is number => Number.isSafeInteger(node) && (node as number) >= min && (node as number) <= max,
  );
}

/** Reads a whole number from 0 to 2^64-1. */
export const uint64: Schema<bigint> = {
  parse(node, path = "") {
    const value = toUnsignedBigInt(node);
    if (value === undefined || value > 0xffff_ffff_ffff_ffffn) {
      throw mismatchError(path, "a whole number from 0 to 2^64-1", node);
    }
    return value;
  },
};

/** Reads one of these strings. */
export function oneOf<const V extends readonly string[]>(...values: V): Schema<V[number]> {
  return primitive(
    () => {
      const quoted = values.map((value) => JSON.stringify(value));
      const last = quoted.pop();
      return quoted.length ? `${quoted.join(", ")} or ${last}` : `${last}`;
    },
    (node): node is V[number] => values.includes(node as string),
  );
}

/** Reads a list; errors name the element: `routes[0]`. */
export function array<T>(item: Schema<T>): Schema<readonly T[]> {
  return {
    inner: item,
    isList: true,
    parse(node, path = "") {
      if (!Array.isArray(node)) throw mismatchError(path, "an array", node);
      return node.map((element, i) => item.parse(element, `${path}[${i}]`));
    },
  };
}

/** Reads a map whose keys are data: `A` and `a` are two entries. */
export function record<T>(value: Schema<T>): Schema<Readonly<Record<string, T>>> {
  return {
    parse(node, path = "") {
      const entries = Object.entries(jsonObject.parse(node, path));
      return Object.fromEntries(entries.map(([key, member]) => [key, value.parse(member, memberPath(path, key))]));
    },
  };
}

/** Reads an object; unknown keys are kept. */
export function object<const S extends Shape>(shape: S): Schema<ObjectOf<S>> {
  return { shape, parse: (node, path = "") => parseShape(shape, node, path, true) };
}

/** Reads an object that has no unknown keys. */
export function knownKeys<const S extends Shape>(shape: S): Schema<ObjectOf<S>> {
  return { shape, parse: (node, path = "") => parseShape(shape, node, path, false) };
}

/** Its key may be missing or `null`; see {@linkcode Schema.emptyIsUnset}. */
export function optional<T>(inner: Schema<T>): Optional<T> {
  return {
    optional: true,
    inner,
    parse: (node, path) => isAbsent(inner, node) ? undefined : inner.parse(node, path),
  };
}

/** Its key may be missing, and has a default then. */
export function withDefault<T>(inner: Schema<T>, value: T): Schema<T> {
  return { inner, parse: (node, path) => isAbsent(inner, node) ? value : inner.parse(node, path) };
}

/** Made when first used, for a fast start. */
export function lazy<T>(make: () => Schema<T>): Schema<T> {
  let cached: Schema<T> | undefined;
  const get = () => cached ??= make();
  return { inner: get, parse: (node, path) => get().parse(node, path) };
}

/** Reads what `inner` accepts, if `predicate` holds. */
export function refine<T>(inner: Schema<T>, expected: string, predicate: (value: T) => boolean): Schema<T> {
  return {
    emptyIsUnset: inner.emptyIsUnset,
    inner,
    parse(node, path = "") {
      const value = inner.parse(node, path);
      if (!predicate(value)) throw mismatchError(path, expected, node);
      return value;
    },
  };
}

const u32 = int({ min: 0, max: 0xffff_ffff });

/** A route (SPEC §ADD Success). */
export interface RouteConfig {
  /** The destination; `0.0.0.0/0` is the default route. */
  readonly dst: Cidr;
  /** The next hop; without it a plugin may use an address's gateway. */
  readonly gw?: Ip;
  /** The largest packet on this path, in bytes. */
  readonly mtu?: number;
  /** The advertised size of TCP segments, in bytes. */
  readonly advmss?: number;
  /** The metric: the lowest route wins. */
  readonly priority?: number;
  /** The number of a table; 254 is `main`. */
  readonly table?: number;
  /** The scope: 0 global, 253 link, 254 host. */
  readonly scope?: number;
}

/** Reads a route, with all its keys. */
export const route: Schema<RouteConfig> = lazy(() =>
  knownKeys({
    dst: cidr,
    gw: optional(ipAddress),
    mtu: optional(u32),
    advmss: optional(u32),
    priority: optional(u32),
    table: optional(u32),
    scope: optional(u32),
  })
);

/** Reads a route whose gateway has the destination's family, as the kernel demands. */
export const routeOfOneFamily: Schema<RouteConfig> = lazy(() =>
  refine(
    route,
    "a route with destination and gateway of one family",
    ({ dst, gw }) => gw === undefined || familyOf(gw) === familyOf(dst),
  )
);

/** Finds the exact spelling of `key`, else the last in another case. */
export function findKey(node: JsonObject, key: string): string | undefined {
  if (Object.hasOwn(node, key)) return key;
  const lowerCaseKey = key.toLowerCase();
  let lastMatch: string | undefined;
  for (const candidate in node) {
    if (candidate.length === key.length && candidate.toLowerCase() === lowerCaseKey) lastMatch = candidate;
  }
  return lastMatch;
}

/** Finds the value that {@linkcode findKey} names. */
export function findValue(node: JsonObject, key: string): unknown {
  const spelling = findKey(node, key);
  return spelling === undefined ? undefined : node[spelling];
}

/** Tells whether `node` is an object; numbers kept as text are not. */
export function isJsonObject(node: unknown): node is JsonObject {
  return typeof node === "object" && node !== null && !Array.isArray(node) && !JSON_TEXT.isRawJSON(node);
}

function parseShape<S extends Shape>(shape: S, node: unknown, path: string, keepUnknown: boolean): ObjectOf<S> {
  const source = jsonObject.parse(node, path);
  const keysInLowerCase = keysByLowerCase(source);
  const parsedObject: Record<string, unknown> = keepUnknown ? { ...source } : {};
  for (const key in shape) {
    const matchingKeys = keysInLowerCase[key.toLowerCase()];
    const sourceKey = matchingKeys && !Object.hasOwn(source, key) ? matchingKeys[matchingKeys.length - 1]! : key;
    if (keepUnknown && matchingKeys) { for (const foundKey of matchingKeys) delete parsedObject[foundKey]; }
    const parsed = shape[key].parse(matchingKeys && (source[sourceKey] ?? undefined), memberPath(path, sourceKey));
    if (parsed !== undefined) parsedObject[key] = parsed;
  }
  return parsedObject as ObjectOf<S>;
}

function keysByLowerCase(node: JsonObject): Readonly<Record<string, string[]>> {
  const byLowerCase: Record<string, string[]> = Object.create(null);
  for (const key in node) (byLowerCase[key.toLowerCase()] ??= []).push(key);
  return byLowerCase;
}

/** @param expected a function if it holds numbers: a process's first printed number costs 0.2 ms */
function primitive<T>(expected: string | (() => string), accepts: (node: unknown) => node is T): Schema<T> {
  return {
    parse(node, path = "") {
      if (!accepts(node)) throw mismatchError(path, typeof expected === "string" ? expected : expected(), node);
      return node;
    },
  };
}

function parsedString<T extends string>(expected: string, parseText: (value: string) => T): Schema<T> {
  return {
    parse(node, path = "") {
      try {
        if (isString(node)) return parseText(node);
      } catch (error) {
        if (!(error instanceof SyntaxError)) throw error;
      }
      throw mismatchError(path, expected, node);
    },
  };
}

function mismatchError(path: string, expected: string, node: unknown): ConfigError {
  return new ConfigError(path, expected, excerpt(node));
}

function toUnsignedBigInt(node: unknown): bigint | undefined {
  // Kept as text by parseJson(); 2^64-1 has 20 digits.
  const text = JSON_TEXT.isRawJSON(node) ? (node as { readonly rawJSON: string }).rawJSON : undefined;
  if (text !== undefined) return /^[0-9]{1,20}$/.test(text) ? BigInt(text) : undefined;
  return typeof node === "number" && Number.isInteger(node) && node >= 0 ? BigInt(node) : undefined;
}

function isString(node: unknown): node is string {
  return typeof node === "string";
}

function isAbsent(inner: Schema<unknown>, node: unknown): boolean {
  return node === undefined || node === null || (node === "" && inner.emptyIsUnset === true);
}
