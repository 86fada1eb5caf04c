/**
 * Options of a command line, declared in a table that parsing and help share.
 *
 * Own code, because the small libraries guess. `mri` reads `-` as an option without a name and loses the word behind it, so that of
 * `add - NETNS` nothing is left but `add`; `-p80:80` is six options to it; `--json=yes` makes a word `yes`.
 *
 * @module
 */
import { suggestion } from "../spec/suggest.ts";

/** What words and values are called in usage lines. What is of one kind has one name. */
export type ValueName =
  | ("ARGS" | "COMMAND" | "DIR" | "DIRS" | "ID" | "ID[/IFNAME]" | "IFNAME" | "IP" | "JSON" | "K=V;K=V" | "MAC")
  | ("NAME" | "NETNS" | "NETWORK" | "PLUGIN" | "PORTS" | "TIME");

/** One option. */
export interface OptionSpec {
  /** Without dashes: `conf-dir`. */
  readonly name: string;
  /** A letter for `-p`. */
  readonly short?: string;
  /** What to call the value in help: `DIR`. Without it the option is a switch. */
  readonly value?: ValueName;
  /** The only values that there are; upper and lower case are the same. */
  readonly choices?: readonly string[];
  /** The environment variable that stands in for it; an empty one is none. */
  readonly env?: string;
  readonly help: string;
}

/** Every command has it. */
export const HELP_OPTION: OptionSpec = { name: "help", short: "h", help: "print this" };

/** The command line cannot be understood; the exit status is 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** What `parseText` makes of the text. @throws {UsageError} what it throws, behind what the text is for */
export function parseOrUsageError<T>(subject: string, text: string, parseText: (text: string) => T): T {
  try {
    return parseText(text);
  } catch (error) {
    throw new UsageError(`${subject}: ${error instanceof Error ? error.message : error}`);
  }
}

/** There is no such option. */
export class UnknownOptionError extends UsageError {
  /** @param option as it was written: `--conf-dri` */
  constructor(readonly option: string, known: readonly string[]) {
    super(`unknown option "${option}"${suggestion(option, known)}`);
  }
}

/** A command line taken apart. */
export interface ParsedOptions {
  /** What is no option, in order; `-` is one of them. */
  readonly words: readonly string[];
  /** True if the switch or option is there; the environment does not count. */
  has(name: string): boolean;
  /** The last value given, or the environment's. */
  find(name: string): string | undefined;
  /** All values given, in order. */
  list(name: string): readonly string[];
}

/**
 * Takes a command line apart: `--name VALUE`, `--name=VALUE`, `-n VALUE`, `-nVALUE`; after `--` everything is a word.
 *
 * @param optionsUntil so many words may have options before and between them; from the next word on everything is a word
 * @throws {UsageError} for an unknown option, a missing value, or a value that the option does not take
 */
export function parseOptions(
  argv: readonly string[],
  specs: readonly OptionSpec[],
  env: Readonly<Record<string, string | undefined>>,
  optionsUntil = Infinity,
): ParsedOptions {
  const words: string[] = [];
  const values = new Map<string, string[]>();
  const remaining = [...argv];
  for (let word; (word = remaining.shift()) !== undefined;) {
    if (word === "--") {
      words.push(...remaining);
      break;
    }
    if (word === "-" || !word.startsWith("-")) {
      words.push(word);
      if (words.length > optionsUntil) words.push(...remaining.splice(0));
      continue;
    }
    const { spec, inline } = findOption(word, specs);
    const value = optionValue(spec, inline, remaining);
    values.set(spec.name, [...values.get(spec.name) ?? [], value]);
  }
  const specOf = (name: string) => specs.find((spec) => spec.name === name);
  return {
    words,
    has: (name) => values.has(name),
    find: (name) => values.get(name)?.at(-1) ?? (env[specOf(name)?.env ?? ""] || undefined),
    list: (name) => values.get(name) ?? [],
  };
}

function findOption(word: string, specs: readonly OptionSpec[]): { spec: OptionSpec; inline: string | undefined } {
  const long = word.startsWith("--");
  const equals = long ? word.indexOf("=") : -1;
  const name = long ? word.slice(2, equals < 0 ? undefined : equals) : word[1];
  const spec = specs.find((candidate) => (long ? candidate.name : candidate.short) === name);
  if (spec) {
    return { spec, inline: long ? (equals < 0 ? undefined : word.slice(equals + 1)) : word.slice(2) || undefined };
  }
  throw new UnknownOptionError(long ? `--${name}` : `-${name}`, specs.map((candidate) => `--${candidate.name}`));
}

function optionValue(spec: OptionSpec, inline: string | undefined, remaining: string[]): string {
  if (spec.value === undefined) {
    if (inline !== undefined) throw new UsageError(`option "--${spec.name}" takes no value: got "${inline}"`);
    return "";
  }
  const value = inline ?? remaining.shift();
  // An empty value comes from a variable that was never set. No option has a meaning for it: no directory of plugins is ":".
  if (!value) throw new UsageError(`option "--${spec.name}" needs a value: ${spec.value}`);
  if (!spec.choices) return value;
  const choice = spec.choices.find((candidate) => candidate.toLowerCase() === value.toLowerCase());
  if (choice !== undefined) return choice;
  throw new UsageError(`--${spec.name} must be one of ${spec.choices.join(", ")}: got ${JSON.stringify(value)}`);
}
