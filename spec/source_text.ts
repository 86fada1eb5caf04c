import { loadJsoncParser, MAX_DEPTH, parseErrorMessages, pathSegments } from "./jsonc.ts";

/** Line and column count from 1. */
export interface SourceSpan {
  readonly line: number;
  readonly column: number;
  readonly length: number;
}

export interface SyntaxProblem {
  readonly message: string;
  readonly offset: number;
}

export interface SourceText {
  readonly path: string;
  readonly text: string;
  /**
   * @param path of a value, or of a key with its value: `plugins[0].ipam`; an absent one counts as its nearest parent
   */
  span(path: string, part: "key" | "value"): SourceSpan;
  spanAt(offset: number, length?: number): SourceSpan;
  /** @param line from 1 */
  lineText(line: number): string;
}

type Node = import("jsonc-parser").Node;

export function createSourceText(path: string, text: string): SourceText {
  // A text may have thousands of problems: lines and members are found once, not for each of them.
  let tree: Node | undefined;
  let lineStarts: readonly number[] | undefined;
  const members = newMemberIndex();
  const spanAt = (offset: number, length = 1): SourceSpan => {
    lineStarts ??= findLineStarts(text);
    const line = lineOf(lineStarts, offset);
    const span = text.slice(offset, offset + length).split(/[\r\n\u2028\u2029]/, 1)[0]!;
    return { line, column: offset - lineStarts[line - 1]! + 1, length: Math.max(1, span.length) };
  };
  return {
    path,
    text,
    spanAt,
    span(jsonPath, part) {
      tree ??= parseTreeOf(text);
      const { offset, length } = findNode(tree, jsonPath, part, members) ?? { offset: 0, length: 1 };
      return spanAt(offset, length);
    },
    lineText(line) {
      lineStarts ??= findLineStarts(text);
      const end = (lineStarts[line] ?? text.length + 1) - 1;
      return text.slice(lineStarts[line - 1], text[end - 1] === "\r" ? end - 1 : end);
    },
  };
}

const findLineStarts = (text: string): number[] => [0, ...Array.from(text.matchAll(/\n/g), ({ index }) => index + 1)];

/** Finds the last line that does not start behind the offset, from 1. */
function lineOf(lineStarts: readonly number[], offset: number): number {
  let first = 0;
  let end = lineStarts.length;
  while (end - first > 1) {
    const middle = (first + end) >> 1;
    if (lineStarts[middle]! <= offset) first = middle;
    else end = middle;
  }
  return first + 1;
}

type MemberIndex = (node: Node) => ReadonlyMap<unknown, Node>;

/** Members are found as in parsing: the last of a name counts. */
function newMemberIndex(): MemberIndex {
  const indexes = new Map<Node, ReadonlyMap<unknown, Node>>();
  return (node) => {
    const index = indexes.get(node) ?? new Map(node.children?.map((child) => [child.children?.[0]?.value, child]));
    indexes.set(node, index);
    return index;
  };
}

export function findSyntaxProblems(text: string, { strict = false } = {}): SyntaxProblem[] {
  const tooDeep = findTooDeep(text);
  // The parser is recursive: it would overflow the stack.
  if (tooDeep !== undefined) return [{ message: `nested more than ${MAX_DEPTH} levels deep`, offset: tooDeep }];
  const errors: import("jsonc-parser").ParseError[] = [];
  const options = { allowTrailingComma: !strict, disallowComments: strict, allowEmptyContent: false };
  loadJsoncParser().parse(text, errors, options);
  return errors.map(({ error, offset }) => ({ message: parseErrorMessages()[error - 1]!, offset }));
}

/** Strings and comments do not count. */
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

/** Returns `undefined` if it is nested too deep. */
function parseTreeOf(text: string): Node | undefined {
  try {
    return loadJsoncParser().parseTree(text);
  } catch {
    return undefined;
  }
}

function findNode(
  tree: Node | undefined,
  path: string,
  part: "key" | "value",
  members: MemberIndex,
): Node | undefined {
  let node = tree;
  let key: Node | undefined;
  for (const segment of pathSegments(path)) {
    const property = typeof segment === "string" && node ? members(node).get(segment) : undefined;
    const child = typeof segment === "number" ? node?.children?.[segment] : property?.children?.[1];
    // An absent key gets the brace of its object.
    if (!child) return node && { ...node, length: 1 };
    node = child;
    key = property?.children?.[0];
  }
  return part === "key" && key ? key : node;
}
