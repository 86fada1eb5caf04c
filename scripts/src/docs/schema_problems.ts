/**
 * What is wrong with the values in a plugin's documentation: examples, defaults, and what a type says of them, each
 * tried with the plugin's schema.
 *
 * @module
 */
import type { KeyDocs } from "../../../plugins/lib/docs/plugin_docs.ts";
import { isJsonObject, type JsonObject, type Schema } from "../../../spec/schema.ts";

/** `ipam.ranges[][].subnet` as the path of a key, without regard to lists. */
export const withoutBrackets = (path: string): string => path.replaceAll("[]", "");

/** Problems as sentences. */
export function schemaProblems(
  name: string,
  schema: Schema<unknown>,
  example: JsonObject,
  keys: Readonly<Record<string, KeyDocs>>,
): string[] {
  const schemas = schemasOf(schema);
  const whole = refusals(schemas, example).map((reason) => `${name} does not read its example: ${reason}`);
  const paths = Object.keys(keys).filter((path) => !path.startsWith("CNI_ARGS "));
  return [...whole, ...paths.flatMap((path) => keyProblems({ name, schemas, example, keys, path }))];
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

function keyProblems(documented: Documented): string[] {
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

/** What the schema reads; whatever it refuses is the same. */
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
