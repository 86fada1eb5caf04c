/** Commands are data: the command line, help and docs read the same object. */
import type { CliContext, ProgramStart } from "../program/start.ts";
import type { CompletionKind, OptionSpec, ParsedOptions, ValueName } from "./options.ts";

export interface CommandContext extends CliContext {
  /** A worker of the server does the call in its own process. @returns the exit status */
  runProgram(start: ProgramStart): Promise<number>;
  readonly root: CommandGroup;
  formatHelp(words: readonly string[]): Promise<string>;
}

export interface ArgumentSpec {
  readonly name: ValueName;
  readonly help: string;
  readonly choices?: readonly string[];
  readonly completion?: CompletionKind;
  readonly optional?: true;
  /** Only the last may: it takes all further words, also options, for another program. */
  readonly repeated?: true;
  /** Only the last may: it takes any number of words. */
  readonly several?: true;
}

export interface Example {
  readonly command: string;
  readonly about: string;
}

interface CommandInfo {
  readonly name: string;
  readonly summary: string;
  readonly description?: string;
  readonly examples?: readonly Example[];
  /** The end of its help, such as the list of plugins. */
  details?(words: readonly string[]): Promise<string>;
}

export interface Command extends CommandInfo {
  readonly arguments: readonly ArgumentSpec[];
  readonly options: readonly OptionSpec[];
  /** Of a failure; 1 unless told. */
  readonly failureStatus?: number;
  /** Help leaves out what only programs call. */
  readonly hidden?: true;
  /** Required words are present. @returns the exit status; nothing for 0 */
  run(input: ParsedOptions, context: CommandContext): number | void | Promise<number | void>;
}

/** Commands load on demand, for a fast start. */
type CommandTable = Readonly<Record<string, () => Promise<{ readonly default: Command | CommandGroup }>>>;

export interface CommandGroup extends CommandInfo {
  readonly commands: CommandTable;
  readonly aliases?: Readonly<Record<string, string>>;
  readonly defaultCommand?: string;
  /** Every command accepts them: a script may give all commands the same. */
  readonly options?: readonly OptionSpec[];
  /** Surplus words are logged, as in cnitool, and no error. */
  readonly ignoresSurplus?: true;
}
