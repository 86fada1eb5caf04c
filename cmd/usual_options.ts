/** Options that people know from other programs: one meaning everywhere, or the right word. @module */
import type { OptionSpec, ParsedOptions, UnknownOptionError } from "./options.ts";
import { UsageError } from "../program/usage_error.ts";

/** Help does not have it where a command has `--json`, which is shorter. */
const JSON_FORMAT_OPTION: OptionSpec = {
  name: "format",
  value: "FORMAT",
  choices: ["text", "json"],
  help: "json: the same as --json",
};

/** The best word comes first. */
const OWN_WORDS: Readonly<Record<string, readonly string[]>> = {
  "-f": ["force", "yes", "fix", "json"],
  "--force": ["yes", "fix"],
  "-v": ["verbose", "rules", "trace"],
  "--verbose": ["rules", "trace"],
  "-o": ["json"],
  "--output": ["json"],
  "-j": ["json"],
};

const WITHOUT_OWN_WORD: Readonly<Record<string, string>> = {
  "-v": 'the version is "cni version"',
  "-q": "results go to stdout, and messages to stderr: >/dev/null or 2>/dev/null leaves one out",
  "--quiet": "results go to stdout, and messages to stderr: >/dev/null or 2>/dev/null leaves one out",
};

/** Adds those that need no line of their own in help. */
export function withUsualOptions(specs: readonly OptionSpec[]): readonly OptionSpec[] {
  const has = (name: string) => specs.some((spec) => spec.name === name);
  return has("json") && !has(JSON_FORMAT_OPTION.name) ? [...specs, JSON_FORMAT_OPTION] : specs;
}

/** Treats `--format json` as `--json`. @throws {UsageError} if both are there, and differ */
export function resolveFormat(options: ParsedOptions): ParsedOptions {
  const format = options.find(JSON_FORMAT_OPTION.name);
  if (options.has("json") && format !== undefined && format !== "json") {
    throw new UsageError(`--json and --format ${format} ask for two formats: leave out one of the two`);
  }
  return { ...options, has: (name) => options.has(name) || (name === "json" && format === "json") };
}

/** @returns an error that names what the command has in place of the option; `undefined` if there is nothing */
export function explainUnknownOption(
  { option }: UnknownOptionError,
  specs: readonly OptionSpec[],
): UsageError | undefined {
  const own = OWN_WORDS[option]?.find((word) => specs.some(({ name }) => name === word));
  const hint = own === undefined ? WITHOUT_OWN_WORD[option] : `use "--${own}"`;
  return hint === undefined ? undefined : new UsageError(`unknown option "${option}"; ${hint}`);
}
