/**
 * The administrator's list of allowed kernel parameters: a regular expression per line. As in the reference plugin, the syntax is RE2, and a
 * match of any part of the key counts.
 *
 * @see https://github.com/google/re2/wiki/Syntax
 */
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { readText } from "../../ffi/sys/file.ts";
import { CniError, Code, ConfigError } from "../../spec/error.ts";
import { memberPath } from "../../spec/schema.ts";

/** The reference plugin has the same path. */
export const ALLOWLIST_PATH = "/etc/cni/tuning/allowlist.conf";

/** Without a file all keys are allowed, with an empty file none. @throws {ConfigError} naming the first disallowed key */
export function refuseDisallowed(file: string, keys: readonly string[]): void {
  if (keys.length === 0) return;
  // May be a symbolic link: Kubernetes installs configuration that way.
  const text = ignoreErrors(["ENOENT", "ENOTDIR"], () => readText(file));
  if (text === undefined) return;
  const lines = text.split("\n").map((line) => line.trim());
  const allowed = lines.flatMap((line, i) => line === "" ? [] : [compilePattern(line, `${file}:${i + 1}`)]);
  const forbidden = keys.find((key) => !allowed.some((pattern) => pattern.test(key)));
  if (forbidden === undefined) return;
  throw new ConfigError(
    memberPath("sysctl", forbidden),
    `a kernel parameter that a line of "${file}" allows`,
    JSON.stringify(forbidden),
  );
}

/** Syntax that JavaScript writes differently. Other syntax of only one language is an error in the other. */
const RE2_TRANSLATIONS: readonly (readonly [RegExp, (...parts: string[]) => string])[] = [
  [/^\\A/, () => "(?<![^])"],
  [/^\\z/, () => "(?![^])"],
  [/^\\(p|P)([A-Z])/, (_, negation, letter) => `\\${negation}{${letter}}`],
  [/^\(\?P</, () => "(?<"],
  [/^\[:(\^?)(\w+):\]/, (whole, negation, name) => POSIX_CLASSES[name!] && !negation ? POSIX_CLASSES[name!]! : whole!],
  // RE2 allows escapes of any punctuation, JavaScript only of special characters.
  [/^\\([^0-9A-Za-z\s])/, (_, char) => /[\^$\\.*+?()[\]{}|/-]/.test(char!) ? `\\x${hex(char!)}` : char!],
];
const POSIX_CLASSES: Readonly<Record<string, string>> = {
  alnum: "0-9A-Za-z",
  alpha: "A-Za-z",
  digit: "0-9",
  lower: "a-z",
  upper: "A-Z",
  word: "0-9A-Za-z_",
  xdigit: "0-9A-Fa-f",
};
const hex = (char: string) => char.charCodeAt(0).toString(16).padStart(2, "0");

/** @throws {CniError} naming the line: an invalid list allows nothing */
function compilePattern(line: string, location: string): RegExp {
  const [flags = "", flagLetters = ""] = /^\(\?([is]+)\)/.exec(line) ?? [];
  let pattern = "";
  for (let rest = line.slice(flags.length); rest !== "";) {
    const [length, piece] = translateToken(rest);
    pattern += piece;
    rest = rest.slice(length);
  }
  try {
    return new RegExp(pattern, `u${flagLetters}`);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new CniError(
      Code.InvalidConfig,
      `Cannot use the list of allowed sysctls: ${location} is no pattern: ${reason}`,
      {
        details: line,
      },
    );
  }
}

function translateToken(rest: string): [length: number, piece: string] {
  for (const [from, to] of RE2_TRANSLATIONS) {
    const found = from.exec(rest);
    if (found) return [found[0].length, to(...found)];
  }
  const length = rest[0] === "\\" ? 2 : 1;
  return [length, rest.slice(0, length)];
}
