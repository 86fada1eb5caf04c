import { UsageError } from "../program/usage_error.ts";
/**
 * Small libraries guess wrong: `mri` loses the NETNS of `add - NETNS`, reads six options in `-p80:80`, and makes a word
 * of the value in `--json=yes`.
 */
import { suggestion } from "../spec/suggest.ts";

/** In usage lines, each kind of word or value has one name. */
export type ValueName =
  | (
    | "ADDRESS"
    | "ARGS"
    | "COMMAND"
    | "DIR"
    | "DIRS"
    | "DRIVER"
    | "FILE"
    | "FORMAT"
    | "ID"
    | "ID[/IFNAME]"
    | "IFNAME"
    | "IP"
    | "JSON"
    | "K=V"
    | "K=V;K=V"
    | "MAC"
  )
  | ("NAME" | "NETNS" | "NETWORK" | "NUMBER" | "PATH" | "PLUGIN" | "PLUGIN[.KEY]" | "PORTS")
  | ("RULE" | "SUBNET" | "TIME" | "NETWORK|CONTAINER" | "NETNS|CONTAINER" | "NETWORK|NETNS|CONTAINER")
  | ("FROM" | "PAGE" | "PORT" | "SHELL" | "TO" | "URL" | "WHAT" | "WORD");

/** By default, the name of the value decides what a shell offers. */
export type CompletionKind =
  | (
    | "attachment"
    | "command"
    | "container"
    | "named-container"
    | "directory"
    | "file"
    | "key"
    | "netns"
    | "network"
    | "page"
    | "plugin"
  )
  | ("rule" | "nothing");

export interface OptionSpec {
  readonly name: string;
  readonly short?: string;
  /** Without a value, the option is a switch. */
  readonly value?: ValueName;
  readonly choices?: readonly string[];
  /** The variable with its default; an empty one does not count. */
  readonly env?: string;
  readonly help: string;
  readonly completion?: CompletionKind;
}

export const HELP_OPTION: OptionSpec = { name: "help", short: "h", help: "print this help" };

/** @throws {UsageError} the parser's message after `subject`, and an example if there is one */
export function parseOrUsageError<T>(
  subject: string,
  text: string,
  parseText: (text: string) => T,
  example?: string,
): T {
  try {
    return parseText(text);
  } catch (error) {
    const hints = example === undefined ? [] : [`for example: ${subject} ${example}`];
    throw new UsageError(`${subject}: ${error instanceof Error ? error.message : error}`, hints);
  }
}

export class UnknownOptionError extends UsageError {
  /** @param option as written: `--conf-dri` */
  constructor(readonly option: string, known: readonly string[]) {
    super(`unknown option "${option}"${suggestion(option, known)}`);
  }
}

export interface ParsedOptions {
  /** A single `-` is a word. */
  readonly words: readonly string[];
  /** The environment does not count. */
  has(name: string): boolean;
  /** Finds the last value, or the environment's. */
  find(name: string): string | undefined;
  /** The environment's value is left out. */
  list(name: string): readonly string[];
}

/**
 * Parses `--name VALUE`, `--name=VALUE`, `-n VALUE` and `-nVALUE`. After `--` everything is a word.
 *
 * @param optionsUntil the number of words between which options may stand; after the next word, everything is a word
 * @throws {UsageError} for an unknown option, or a missing or wrong value
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
  const long = /^--([^=]*)(?:=([^]*))?$/.exec(word);
  const [name, inline] = long ? [long[1], long[2]] : [word[1], word.slice(2) || undefined];
  const spec = specs.find((candidate) => (long ? candidate.name : candidate.short) === name);
  if (spec) return { spec, inline };
  throw new UnknownOptionError(long ? `--${name}` : `-${name}`, specs.map((candidate) => `--${candidate.name}`));
}

function optionValue(spec: OptionSpec, inline: string | undefined, remaining: string[]): string {
  if (spec.value === undefined) {
    if (inline !== undefined) throw new UsageError(`option "--${spec.name}" takes no value: got "${inline}"`);
    return "";
  }
  const value = inline ?? remaining.shift();
  // An empty value usually comes from an unset variable. No option needs one: ":" stands for no plugin directory.
  if (!value) throw new UsageError(`option "--${spec.name}" needs a value: ${spec.value}`);
  if (!spec.choices) return value;
  const choice = spec.choices.find((candidate) => candidate.toLowerCase() === value.toLowerCase());
  if (choice !== undefined) return choice;
  const hint = suggestion(value, spec.choices);
  throw new UsageError(`--${spec.name} must be one of ${spec.choices.join(", ")}: got ${JSON.stringify(value)}${hint}`);
}
