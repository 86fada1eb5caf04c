import { lineAndColumn, loadJsoncParser, MAX_DEPTH, parseErrorMessages, pathSegments } from "./jsonc.ts";

/** A part of a text; line and column count from 1. */
export interface SourceSpan {
  readonly line: number;
  readonly column: number;
  /** In characters of the first line. */
  readonly length: number;
}

export interface SyntaxProblem {
  readonly message: string;
  readonly offset: number;
}

/** A text of JSON with comments, and where everything is in it. */
export interface SourceText {
  /** Its file. */
  readonly path: string;
  readonly text: string;
  /** Of a value, or of a key with its value: `plugins[0].ipam`; the nearest parent's if it is absent. */
  span(path: string, part: "key" | "value"): SourceSpan;
  spanAt(offset: number, length?: number): SourceSpan;
}

type Node = import("jsonc-parser").Node;

export function createSourceText(path: string, text: string): SourceText {
  let tree: Node | undefined;
  const spanAt = (offset: number, length = 1): SourceSpan => {
    const lineEnd = /\r?$/m.exec(text.slice(offset))?.index ?? 0;
    return { ...lineAndColumn(text, offset), length: Math.max(1, Math.min(length, lineEnd)) };
  };
  return {
    path,
    text,
    spanAt,
    span(jsonPath, part) {
      tree ??= parseTreeOf(text);
      const { offset, length } = findNode(tree, jsonPath, part) ?? { offset: 0, length: 1 };
      return spanAt(offset, length);
    },
  };
}

/** What a strict or a tolerant reader refuses; none if it accepts the text. */
export function findSyntaxProblems(text: string, { strict = false } = {}): SyntaxProblem[] {
  const tooDeep = findTooDeep(text);
  // The parser is recursive: it would overflow the stack.
  if (tooDeep !== undefined) return [{ message: `nested more than ${MAX_DEPTH} levels deep`, offset: tooDeep }];
  const errors: import("jsonc-parser").ParseError[] = [];
  const options = { allowTrailingComma: !strict, disallowComments: strict, allowEmptyContent: false };
  loadJsoncParser().parse(text, errors, options);
  return errors.map(({ error, offset }) => ({ message: parseErrorMessages()[error - 1]!, offset }));
}

/** Where the nesting goes beyond the deepest level; strings and comments do not count. */
function findTooDeep(text: string): number | undefined {
  let depth = 0;
  for (
    const { 0: token, index } of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"?|\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)|[[\]{}]/g)
  ) {
    if (token === "[" || token === "{") depth++;
    if (token === "]" || token === "}") depth--;
    if (depth > MAX_DEPTH) return index;
  }
  return undefined;
}

/** `undefined` if it is nested too deep. */
function parseTreeOf(text: string): Node | undefined {
  try {
    return loadJsoncParser().parseTree(text);
  } catch {
    return undefined;
  }
}

/** Members are found as in parsing: the last of a name counts. */
function findNode(tree: Node | undefined, path: string, part: "key" | "value"): Node | undefined {
  let node = tree;
  let key: Node | undefined;
  for (const segment of pathSegments(path)) {
    const property = typeof segment === "string"
      ? node?.children?.findLast(({ children }) => children?.[0]?.value === segment)
      : undefined;
    const child = typeof segment === "number" ? node?.children?.[segment] : property?.children?.[1];
    // An absent key: the brace of its object.
    if (!child) return node && { ...node, length: 1 };
    node = child;
    key = property?.children?.[0];
  }
  return part === "key" && key ? key : node;
}
