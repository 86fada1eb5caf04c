// Far below the depth where printing overflows the stack.
export const MAX_DEPTH = 1000;

/** Functions of JSON that the type library lacks (ECMA-262 proposal "JSON.parse source text access"). */
interface JsonText {
  parse(text: string, reviver: (key: string, value: unknown, context: { source?: string }) => unknown): unknown;
  rawJSON(text: string): object;
  isRawJSON(node: unknown): boolean;
}
/** The built-in object itself: a type that all modules see could not be published. */
export const JSON_TEXT: JsonText = JSON as unknown as JsonText;

/**
 * Reads JSON with comments and trailing commas; the last of duplicate keys wins. Numbers that a double would change
 * stay text (`JSON.rawJSON`) and print unchanged.
 *
 * @param source the text's name in errors
 * @throws {SyntaxError} naming line and column, or too deep nesting
 */
export function parseJson(text: string, source = "JSON"): unknown {
  const node = parseStrictOrJsonc(text, source);
  // Every level takes two characters.
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

/** Not recursive, which would overflow the stack. */
function isDeeperThan(node: unknown, maxDepth: number): boolean {
  let level = [node];
  for (let depth = 1; level.length > 0; depth++) {
    if (depth > maxDepth) return true;
    level = level.flatMap((child) =>
      typeof child === "object" && child !== null && !JSON_TEXT.isRawJSON(child) ? Object.values(child) : []
    ).filter((child) => typeof child === "object" && child !== null);
  }
  return false;
}

/** Writes JSON as Go does: `<`, `>`, `&` and line separators are escaped. */
export function stringifyJson(value: unknown, indent = 0): string {
  return JSON.stringify(value, null, indent).replace(
    /[<>&\u2028\u2029]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

export function excerpt(node: unknown): string {
  const json = node === undefined ? "nothing" : JSON.stringify(node);
  return json.length > 80 ? `${json.slice(0, 79)}…` : json;
}

/** Makes `ipam.ranges`, or `["cni.dev/attachments"]` for a key with a dot. */
export function memberPath(path: string, key: string): string {
  if (!/^[A-Za-z_][\w-]*$/.test(key)) return `${path}[${JSON.stringify(key)}]`;
  return path === "" ? key : `${path}.${key}`;
}

/** Line and column count from 1. @param path such as `plugins[0].ipam`; an absent one counts as its nearest parent */
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
    return undefined; // nested too deep for positions
  }
}

const MAX_PATH_LENGTH = 100;

type JsoncParser = Pick<typeof import("jsonc-parser"), "getLocation" | "parse" | "parseTree">;
type Node = import("jsonc-parser").Node;

let loadedParser: JsoncParser | undefined;

/** Deno has no `require()` to load it. */
export function setJsoncParser(parser: JsoncParser): void {
  loadedParser = parser;
}

/** Needed only for positions. The package's main module loads an editor and a formatter too. */
export function loadJsoncParser(): JsoncParser {
  return loadedParser ?? require("jsonc-parser/lib/esm/impl/parser.js");
}

// The order is that of the parser's codes, from 1 (ParseErrorCode of jsonc-parser).
export const parseErrorMessages = () => [
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
  // Long numbers, fractions, exponents and -0 may print otherwise: they need the slower call.
  // Texts of IPv6 have ":1e" within.
  const needsNumberText = /[0-9]{16}|[\s:[,]-?[0-9]+[.eE][0-9.eE+-]+(?:[\s,\]}]|$)|[\s:[,]-0/.test(text);
  return needsNumberText ? JSON_TEXT.parse(text, keepNumberText) : JSON.parse(text);
}

function keepNumberText(_key: string, value: unknown, { source }: { source?: string }): unknown {
  return typeof value === "number" && source !== undefined && JSON.stringify(value) !== source
    ? JSON_TEXT.rawJSON(source)
    : value;
}

/** Also blanks trailing commas and a byte order mark. All positions stay. */
function blankComments(text: string): string {
  // Unclosed strings and comments match to the end: a search from every later quote would take quadratic time.
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

function isClosedComment(comment: string): boolean {
  return comment[1] === "/" || (comment.length > 3 && comment.endsWith("*/"));
}

/** Makes `:3:7, in plugins[0].ipam: comma expected`, or returns the parser's message alone. */
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

/** Finds the last of that name, as parsing does. */
function findMember(node: Node | undefined, name: string): Node | undefined {
  return node?.children?.findLast((property) => property.children?.[0].value === name)?.children?.[1];
}

export function pathSegments(path: string): (string | number)[] {
  const parts = path.matchAll(/\[([0-9]+)\]|\[("(?:\\.|[^"\\])*")\]|([^.[\]]+)/g);
  return Array.from(parts, ([, index, quoted, name]) => {
    if (index) return Number(index);
    return quoted ? JSON.parse(quoted) : name;
  });
}

function formatPath(segments: readonly (string | number)[]): string {
  // The parser gives an empty name before the name itself comes.
  return segments.filter((segment) => segment !== "").reduce<string>(
    (path, segment) => typeof segment === "number" ? `${path}[${segment}]` : memberPath(path, segment),
    "",
  );
}

function lineAndColumn(text: string, offset: number): { line: number; column: number } {
  const before = text.slice(0, offset).split("\n");
  return { line: before.length, column: before[before.length - 1].length + 1 };
}
