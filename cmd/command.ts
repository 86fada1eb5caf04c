/**
 * What a command is. The command line, its help and every other description of it read the same object.
 *
 * @module
 */
import type { OptionSpec, ParsedOptions, ValueName } from "./options.ts";

/** What the command line is run in. */
export interface CliContext {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The name that the program was called by. */
  readonly programName: string;
  /** What relative paths start from; `undefined` if it was removed. */
  findWorkingDirectory(): string | undefined;
}

/** What a command is run in. */
export interface CommandContext extends CliContext {
  /** The help for a command, by its words. @throws {UsageError} if there is none */
  formatHelp(words: readonly string[]): Promise<string>;
}

/** A word that a command takes. */
export interface ArgumentSpec {
  /** As a usage line writes it: `NETWORK`. */
  readonly name: ValueName;
  /** What it may be. */
  readonly help: string;
  readonly optional?: true;
  /** Of the last one: it and all words behind it are taken as they are. Options among them belong to another program. */
  readonly repeated?: true;
}

/** A command line that works, and what it does. */
export interface Example {
  readonly command: string;
  readonly about: string;
}

/** What commands and groups of them have in common. */
interface CommandInfo {
  /** The word for it. */
  readonly name: string;
  /** What it does, in one line: `attach a container`. */
  readonly summary: string;
  /** What is to be known besides, in sentences. */
  readonly description?: string;
  readonly examples?: readonly Example[];
  /** What only a running program knows, such as the list of plugins. Help ends with it. */
  details?(words: readonly string[]): Promise<string>;
}

/** One command. */
export interface Command extends CommandInfo {
  readonly arguments: readonly ArgumentSpec[];
  /** Those that it looks at. */
  readonly options: readonly OptionSpec[];
  /** Programs call it, not people: help does not list it. */
  readonly hidden?: true;
  /** Does it. Words that must be there are there. @returns the exit status; 0 for none */
  run(input: ParsedOptions, context: CommandContext): number | void | Promise<number | void>;
}

/** Commands by name. Each is loaded when it is asked for: a call pays for the start of what it needs only. */
export type CommandTable = Readonly<Record<string, () => Promise<{ readonly default: Command | CommandGroup }>>>;

/** A word in front of several commands. */
export interface CommandGroup extends CommandInfo {
  readonly commands: CommandTable;
  /** Other words for some of them. */
  readonly aliases?: Readonly<Record<string, string>>;
  /** The command that is meant if there is none. */
  readonly defaultCommand?: string;
  /** Options that every command of the group accepts, needed or not: a script may give all commands the same. */
  readonly options?: readonly OptionSpec[];
  /** Words that a command has no use for are named and ignored, as cnitool does; else they are refused. */
  readonly ignoresSurplus?: true;
}
