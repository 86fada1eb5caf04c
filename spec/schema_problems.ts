import { ConfigError } from "./error.ts";
import { findKey, isJsonObject, memberPath, type Schema, type Shape } from "./schema.ts";

/**
 * Tries each key and element on its own; `schema.parse()` throws the first problem alone.
 *
 * A schema may refuse what all its parts accept; then its own error is the only one.
 */
export function schemaProblems(schema: Schema<unknown>, node: unknown, path = ""): readonly ConfigError[] {
  const first = firstProblem(schema, node, path);
  if (first === undefined || first.path === path) return first ? [first] : [];
  const ofParts = partProblems(schema, node, path);
  return ofParts.some((problem) => problem.message === first.message) ? ofParts : [first];
}

/** Tries the schemas inside, too: some plugins parse a part of their keys later. */
export function configurationProblems(schema: Schema<unknown>, node: unknown, path = ""): readonly ConfigError[] {
  const ofSchema = schemaProblems(schema, node, path);
  const inner = innerOf(schema);
  const ofInner = inner && !schema.isList ? configurationProblems(inner, node, path) : [];
  const known = new Set(ofSchema.map(({ message }) => message));
  return [...ofSchema, ...ofInner.filter(({ message }) => !known.has(message))];
}

function firstProblem(schema: Schema<unknown>, node: unknown, path: string): ConfigError | undefined {
  try {
    schema.parse(node, path);
    return undefined;
  } catch (error) {
    if (error instanceof ConfigError) return error;
    throw error;
  }
}

function partProblems(schema: Schema<unknown>, node: unknown, path: string): readonly ConfigError[] {
  const inner = innerOf(schema);
  if (schema.isList && inner && Array.isArray(node)) {
    return node.flatMap((element, i) => schemaProblems(inner, element, `${path}[${i}]`));
  }
  if (inner) return schemaProblems(inner, node, path);
  if (!isJsonObject(node)) return [];
  if (schema.shape) return memberProblems(schema.shape, node, path);
  // A map whose keys are data.
  return Object.entries(node).flatMap(([key, value]) => firstProblem(schema, { [key]: value }, path) ?? []);
}

function memberProblems(shape: Shape, node: Readonly<Record<string, unknown>>, path: string): readonly ConfigError[] {
  return Object.entries(shape).flatMap(([key, schema]) => {
    const spelling = findKey(node, key) ?? key;
    return schemaProblems(schema, node[spelling] ?? undefined, memberPath(path, spelling));
  });
}

function innerOf({ inner }: Schema<unknown>): Schema<unknown> | undefined {
  return typeof inner === "function" ? inner() : inner;
}
