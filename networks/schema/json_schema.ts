/** Makes a JSON Schema from a {@linkcode Schema}: from its shape, and from what its errors say that it expects. @module */
import type { KeyDocs } from "../../plugins/lib/docs/plugin_docs.ts";
import { ConfigError } from "../../spec/error.ts";
import { memberPath, type Schema, type Shape } from "../../spec/schema.ts";
import { type JsonSchema, schemaOfExpectation } from "./value_schemas.ts";

type DocumentedKeys = Readonly<Record<string, KeyDocs>>;

/** Every kind of value is refused by one of these, with what it expects. */
const PROBES: readonly unknown[] = [
  null,
  0.5,
  -1,
  1e20,
  true,
  {},
  [],
  [1],
  ["::1", "::2"],
  "",
  " ",
  "\0",
  "/",
  "..",
  "x",
  "-j",
  "INPUT",
  "eth0",
  "1.2.3.4",
  "01:00:5e:00:00:01",
  "x".repeat(300),
];

/** Adds what no schema says: descriptions, defaults and examples. */
export function jsonSchemaOf(schema: Schema<unknown>, keys: DocumentedKeys, path = ""): JsonSchema {
  return { ...withAbsence(schema, valueSchemaOf(schema, keys, path)), ...documentationOf(keys[path]) };
}

export function propertiesOf(shape: Shape, keys: DocumentedKeys, path = ""): Readonly<Record<string, JsonSchema>> {
  return Object.fromEntries(
    Object.entries(shape).map(([key, member]) => [key, jsonSchemaOf(member, keys, childPath(path, key))]),
  );
}

/** Documented paths have dots of their own in keys such as `cni.dev/attachments`. */
const childPath = (path: string, key: string): string =>
  path === "" ? key : key.includes("/") ? `${path}.${key}` : memberPath(path, key);

function valueSchemaOf(schema: Schema<unknown>, keys: DocumentedKeys, path: string): JsonSchema {
  const { shape, isList } = schema;
  const inner = typeof schema.inner === "function" ? schema.inner() : schema.inner;
  if (shape) return objectSchema(shape, keys, path);
  if (isList && inner) return { type: "array", items: jsonSchemaOf(inner, keys, `${path}[]`) };
  if (!inner) return leafSchema(schema);
  const innerSchema = valueSchemaOf(inner, keys, path);
  if (innerSchema.type === "object" && takesList(schema)) {
    return { anyOf: [innerSchema, { type: "array", items: valueSchemaOf(inner, keys, `${path}[]`), minItems: 1 }] };
  }
  // Its parts are known already, and what the inner schema expects.
  return innerSchema.type === "object" ? innerSchema : { ...innerSchema, ...leafSchema(schema, expectations(inner)) };
}

function objectSchema(shape: Shape, keys: DocumentedKeys, path: string): JsonSchema {
  const required = Object.keys(shape).filter((key) => !accepts(shape[key]!, undefined));
  return { type: "object", properties: propertiesOf(shape, keys, path), ...required.length > 0 && { required } };
}

/** One object or a list of such. */
function takesList(schema: Schema<unknown>): boolean {
  return !expectations(schema, [[]]).includes("an object");
}

/** @param exceptFor what is in the schema already */
function leafSchema(schema: Schema<unknown>, exceptFor: readonly string[] = []): JsonSchema {
  const own = expectations(schema).filter((expected) => !exceptFor.includes(expected));
  const merged: JsonSchema = Object.assign({}, ...own.flatMap((expected) => schemaOfExpectation(expected) ?? []));
  const values = merged.type === "object" ? memberValues(schema) : undefined;
  if (values) return { ...merged, additionalProperties: withAbsence(values, leafSchema(values)) };
  return Array.isArray(merged.enum) ? enumSchema(schema, merged.enum as readonly string[]) : withoutType(merged);
}

/** Beside `anyOf`, which has types of its own. */
function withoutType({ type, minimum, ...rest }: JsonSchema): JsonSchema {
  return rest.anyOf ? rest : { ...type !== undefined && { type }, ...minimum !== undefined && { minimum }, ...rest };
}

/** Returns a schema only for a map whose keys are data. */
function memberValues(schema: Schema<unknown>): Schema<unknown> | undefined {
  const values: Schema<unknown> = {
    parse(node, path = "") {
      try {
        schema.parse({ key: node ?? null }, path);
      } catch (error) {
        throw error instanceof ConfigError ? new ConfigError(path, error.expected, error.got) : error;
      }
    },
  };
  return expectations(values).length > 0 ? values : undefined;
}

/** Some words are accepted in any case. */
function enumSchema(schema: Schema<unknown>, words: readonly string[]): JsonSchema {
  if (!words.every((word) => accepts(schema, word.toUpperCase()))) return { enum: words };
  const inAnyCase = (word: string) => word.replace(/[a-z]/gi, (c) => `[${c.toLowerCase()}${c.toUpperCase()}]`);
  return { type: "string", pattern: `^(${words.map(inAnyCase).join("|")})$`, examples: words };
}

/** `null`, and an empty string for some, count as absent. */
function withAbsence(schema: Schema<unknown>, value: JsonSchema): JsonSchema {
  const isNullAccepted = accepts(schema, undefined);
  const isEmptyAccepted = accepts(schema, "") && !(value.type === "string" && !value.pattern && !value.minLength);
  const absent = [...isNullAccepted ? [null] : [], ...isEmptyAccepted ? [""] : []];
  if (Object.keys(value).length === 0 || absent.length === 0) return value;
  if (Array.isArray(value.enum)) return { ...value, enum: [...value.enum, ...absent] };
  if (typeof value.type === "string" && !isEmptyAccepted) return { ...value, type: [value.type, "null"] };
  return { anyOf: [value, { enum: absent }] };
}

function accepts(schema: Schema<unknown>, node: unknown): boolean {
  return expectationOf(schema, node) === undefined;
}

/** What errors about the node itself say, each once. */
function expectations(schema: Schema<unknown>, probes = PROBES): string[] {
  const found = probes.flatMap((node) => {
    const error = expectationOf(schema, node);
    return error?.path === "" ? [error.expected] : [];
  });
  return [...new Set(found)];
}

function expectationOf(schema: Schema<unknown>, node: unknown): ConfigError | undefined {
  try {
    schema.parse(node, "");
    return undefined;
  } catch (error) {
    if (error instanceof ConfigError) return error;
    throw error;
  }
}

export function documentationOf(docs: KeyDocs | undefined): JsonSchema {
  if (!docs) return {};
  const [json] = /^("[^"]*"|true|false|\d+)(?=$|,)/.exec(docs.default ?? "") ?? [];
  return {
    description: docs.deprecated === undefined ? docs.meaning : `${docs.meaning} Deprecated: ${docs.deprecated}.`,
    ...json !== undefined && { default: JSON.parse(json) },
    ...docs.example !== undefined && { examples: [docs.example] },
    ...docs.deprecated !== undefined && { deprecated: true },
  };
}
