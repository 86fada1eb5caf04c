/**
 * Options of a command line, declared in a table that parsing and help share.
 *
 * Own code, as the small parsers guess: `-` becomes an option that eats the next word, `10` a number, a missing value `true`.
 *
 * @module
 */
import { suggestion } from "../spec/suggest.ts";

/** One option. */
export interface OptionSpec {
  /** Without dashes: `conf-dir`. */
  readonly name: string;
  /** A letter for `-p`. */
  readonly short?: string;
  /** What to call the value in help: `DIR`. Without it the option is a switch. */
  readonly value?: string;
  /** The environment variable that stands in for it; an empty one is none. */
  readonly env?: string;
  readonly help: string;
}

/** The command line cannot be understood; the exit status is 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
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
 * @throws {UsageError} for an unknown option, a missing value, or a value that a switch does not take
 */
export function parseOptions(
  argv: readonly string[],
  specs: readonly OptionSpec[],
  env: Readonly<Record<string, string | undefined>>,
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
  const text = long ? `--${name}` : `-${name}`;
  const known = specs.map((candidate) => `--${candidate.name}`);
  throw new UsageError(`unknown option "${text}"${suggestion(text, known)}`);
}

function optionValue(spec: OptionSpec, inline: string | undefined, remaining: string[]): string {
  if (spec.value === undefined) {
    if (inline !== undefined) throw new UsageError(`option "--${spec.name}" takes no value: got "${inline}"`);
    return "";
  }
  const value = inline ?? remaining.shift();
  // An empty one is that of a variable that was never set, and no option has a meaning for it: no directory of plugins is ":".
  if (!value) throw new UsageError(`option "--${spec.name}" needs a value: ${spec.value}`);
  return value;
}

/** One line per option, for help. */
export function formatOptions(specs: readonly OptionSpec[]): string {
  const columns = specs.map(({ name, short, value }) =>
    `${short ? `-${short}, ` : "    "}--${name}${value === undefined ? "" : ` ${value}`}`
  );
  const width = Math.max(...columns.map((text) => text.length));
  return specs.map(({ help, env }, i) => `  ${columns[i]!.padEnd(width)}  ${help}${env ? ` [$${env}]` : ""}`).join(
    "\n",
  );
}
