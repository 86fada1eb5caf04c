/**
 * JSON text in and out. Reading also takes comments and trailing commas; what fails is named by line and column.
 *
 * @module
 */
import { memberPath } from "./error_text.ts";

/** Arrays and objects inside each other; far from where printing would overflow the stack, and from what anybody writes. */
const MAX_DEPTH = 1000;

/**
 * Reads JSON, with comments and trailing commas allowed; of duplicate keys the last wins.
 *
 * Numbers that a double would change stay as they were written (`JSON.rawJSON`), so they print unchanged.
 * @param source what to call the text in an error, such as its file
 * @throws SyntaxError naming line and column, or that it is nested too deep
 */
export function parseJson(text: string, source = "JSON"): unknown {
  const node = parseStrictOrJsonc(text, source);
  // Every level takes two characters of the text.
  if (text.length <= 2 * MAX_DEPTH || !isDeeperThan(node, MAX_DEPTH)) return node;
  throw new SyntaxError(`Cannot parse ${source}: it is nested more than ${MAX_DEPTH} levels deep`);
}

function parseStrictOrJsonc(text: string, source: string): unknown {
  try {
    return parseStrict(text);
  } catch {
    try {
      return parseStrict(blankComments(text));
    } catch (error) {
      throw new SyntaxError(`Cannot parse ${source}${describeSyntaxError(text, error)}`);
    }
  }
}

/** Level by level, since a function that calls itself for every level would be what overflows. */
function isDeeperThan(node: unknown, maxDepth: number): boolean {
  let level = [node];
  for (let depth = 1; level.length > 0; depth++) {
    if (depth > maxDepth) return true;
    level = level.flatMap((child) =>
      typeof child === "object" && child !== null && !JSON.isRawJSON(child) ? Object.values(child) : []
    ).filter((child) => typeof child === "object" && child !== null);
  }
  return false;
}

/** Writes JSON as the ecosystem does: `<`, `>`, `&` and line separators are escaped. `indent` counts spaces. */
export function stringifyJson(value: unknown, indent = 0): string {
  return JSON.stringify(value, null, indent).replace(
    /[<>&\u2028\u2029]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/**
 * Where a path such as `plugins[0].ipam` stands in the text; of something missing, what should hold it.
 *
 * @returns line and column from 1, or nothing when the text itself is broken
 */
export function locate(text: string, path: string): { line: number; column: number } | undefined {
  try {
    let node = loadJsoncParser().parseTree(text);
    for (const segment of pathSegments(path)) {
      const child = typeof segment === "number" ? node?.children?.[segment] : findMember(node, segment);
      if (!child) break;
      node = child;
    }
    return node && lineAndColumn(text, node.offset);
  } catch {
    return undefined; // nesting too deep for the positions: the error itself is still worth printing
  }
}

const MAX_PATH_LENGTH = 100;

type JsoncParser = Pick<typeof import("jsonc-parser"), "getLocation" | "parse" | "parseTree">;
type Node = import("jsonc-parser").Node;

/** Needed after a failure only: `require` runs it here and not at start-up. Its main module would declare an editor and a formatter too. */
function loadJsoncParser(): JsoncParser {
  return require("jsonc-parser/lib/esm/impl/parser.js");
}

/** What the parser's error codes mean, from 1 on. @see ParseErrorCode of jsonc-parser */
const parseErrorMessages = () => [
  "invalid symbol",
  "invalid number format",
  "property name expected",
  "value expected",
  "colon expected",
  "comma expected",
  "close brace expected",
  "close bracket expected",
  "end of file expected",
  "invalid comment token",
  "unexpected end of comment",
  "unexpected end of string",
  "unexpected end of number",
  "invalid unicode",
  "invalid escape character",
  "invalid character",
];

function parseStrict(text: string): unknown {
  // Numbers of many digits, with a fraction or an exponent, and -0 would be printed otherwise; only they are worth the slower call.
  const needsNumberText = /[0-9]{16}|[\s:[,]-?[0-9]+[.eE]|[\s:[,]-0/.test(text);
  return needsNumberText ? JSON.parse(text, keepNumberText) : JSON.parse(text);
}

/** A number that would not be printed as it was written stays as its text. */
function keepNumberText(_key: string, value: unknown, { source }: { source?: string }): unknown {
  return typeof value === "number" && source !== undefined && JSON.stringify(value) !== source
    ? JSON.rawJSON(source)
    : value;
}

/** Blanks comments, trailing commas and a byte order mark; everything else stays where it was. */
function blankComments(text: string): string {
  // What is not closed goes on to the end: looked for anew from every later quote, it would take the square of the time.
  return text
    .replace(/^\ufeff/, " ")
    .replace(
      /"[^"\\]*(?:\\.[^"\\]*)*"?|\/\/[^\n]*|\/\*(?:[^]*?\*\/|[^]*)/g,
      (token) => token[0] === '"' || !isClosedComment(token) ? token : token.replace(/[^\r\n]/g, " "),
    )
    .replace(
      /"[^"\\]*(?:\\.[^"\\]*)*"?|(?<=["\w}\]]\s*),(?=\s*[}\]])/g,
      (token) => token[0] === '"' ? token : " ",
    );
}

/** False for a comment that goes on to the end of the text. */
function isClosedComment(comment: string): boolean {
  return comment[1] === "/" || (comment.length > 3 && comment.endsWith("*/"));
}

/** `:3:7, in plugins[0].ipam: comma expected`, as compilers write it, or without a position what the parser said. */
function describeSyntaxError(text: string, error: unknown): string {
  try {
    const errors: import("jsonc-parser").ParseError[] = [];
    const { getLocation, parse } = loadJsoncParser();
    parse(text, errors, { allowTrailingComma: true });
    const [first] = errors;
    const { line, column } = lineAndColumn(text, first.offset);
    const fullPath = formatPath(getLocation(text, first.offset).path);
    const path = fullPath.length > MAX_PATH_LENGTH ? `${fullPath.slice(0, MAX_PATH_LENGTH)}…` : fullPath;
    return `:${line}:${column}${path && `, in ${path}`}: ${parseErrorMessages()[first.error - 1]}`;
  } catch {
    return `: ${error instanceof Error ? error.message : String(error)}`;
  }
}

/** The value of a member: the last of that name, as in parsing. */
function findMember(node: Node | undefined, name: string): Node | undefined {
  return node?.children?.findLast((property) => property.children?.[0].value === name)?.children?.[1];
}

/** The parts of a path as the errors of schema.ts write it: `plugins[0].ipam` has three. */
export function pathSegments(path: string): (string | number)[] {
  const parts = path.matchAll(/\[([0-9]+)\]|\[("(?:\\.|[^"\\])*")\]|([^.[\]]+)/g);
  return Array.from(parts, ([, index, quoted, name]) => index ? Number(index) : quoted ? JSON.parse(quoted) : name);
}

function formatPath(segments: readonly (string | number)[]): string {
  // An empty name is the parser's for a name that is still to come.
  return segments.filter((segment) => segment !== "").reduce<string>(
    (path, segment) => typeof segment === "number" ? `${path}[${segment}]` : memberPath(path, segment),
    "",
  );
}

function lineAndColumn(text: string, offset: number): { line: number; column: number } {
  const before = text.slice(0, offset).split("\n");
  return { line: before.length, column: before[before.length - 1].length + 1 };
}
