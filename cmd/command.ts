/** The definition of a command: the command line, help and docs read the same object. @module */
import type { OptionSpec, ParsedOptions, ValueName } from "./options.ts";

/** The surroundings of the command line. */
export interface CliContext {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly programName: string;
  /** `undefined` if it was removed. */
  findWorkingDirectory(): string | undefined;
}

/** The surroundings of a command. */
export interface CommandContext extends CliContext {
  /** @throws {UsageError} if there is no such command */
  formatHelp(words: readonly string[]): Promise<string>;
}

/** An argument of a command. */
export interface ArgumentSpec {
  /** In usage lines: `NETWORK`. */
  readonly name: ValueName;
  readonly help: string;
  readonly optional?: true;
  /** For the last one: it takes all further words, also options, which belong to another program. */
  readonly repeated?: true;
}

/** A command line, and what it does. */
export interface Example {
  readonly command: string;
  readonly about: string;
}

interface CommandInfo {
  readonly name: string;
  /** In one line: `attach a container`. */
  readonly summary: string;
  /** More, in sentences. */
  readonly description?: string;
  readonly examples?: readonly Example[];
  /** The end of its help, made at run time, such as the list of plugins. */
  details?(words: readonly string[]): Promise<string>;
}

/** One command. */
export interface Command extends CommandInfo {
  readonly arguments: readonly ArgumentSpec[];
  readonly options: readonly OptionSpec[];
  /** For programs: help does not list it. */
  readonly hidden?: true;
  /** Required words are present. @returns the exit status; 0 for none */
  run(input: ParsedOptions, context: CommandContext): number | void | Promise<number | void>;
}

/** Commands by name, each loaded on demand, which keeps start-up short. */
export type CommandTable = Readonly<Record<string, () => Promise<{ readonly default: Command | CommandGroup }>>>;

/** Commands behind a common word. */
export interface CommandGroup extends CommandInfo {
  readonly commands: CommandTable;
  readonly aliases?: Readonly<Record<string, string>>;
  /** Used if no command is given. */
  readonly defaultCommand?: string;
  /** Accepted by every command of the group: a script may give all commands the same options. */
  readonly options?: readonly OptionSpec[];
  /** Surplus words are logged and ignored, as in cnitool; otherwise they are an error. */
  readonly ignoresSurplus?: true;
}
