/** Finds what may follow on a command line, from the same objects as help. @module */
import { absolutePath } from "../arguments/path.ts";
import type { ArgumentSpec, Command, CommandGroup } from "../command.ts";
import type { CliContext } from "../../program/start.ts";
import { type CompletionKind, HELP_OPTION, type OptionSpec, type ValueName } from "../options.ts";
import { withUsualOptions } from "../usual_options.ts";
import { type Candidate, type CandidateRequest, findCandidates, kindsOf } from "./candidates.ts";

export interface Completion {
  readonly candidates: readonly Candidate[];
  /** The shell itself offers these. */
  readonly paths: "none" | "files" | "directories";
}

const NOTHING: Completion = { candidates: [], paths: "none" };

interface Position {
  readonly command: Command | CommandGroup | undefined;
  readonly options: readonly OptionSpec[];
  readonly words: readonly string[];
  readonly option: OptionSpec | undefined;
  /** True behind `--`, and in another program's words. */
  readonly isBehindOptions: boolean;
  readonly values: ReadonlyMap<string, string>;
}

/** @param words behind the program's name; the last is being typed, and may be empty */
export async function completeWords(
  root: CommandGroup,
  words: readonly string[],
  context: CliContext,
): Promise<Completion> {
  const current = words.at(-1) ?? "";
  const position = await findPosition(root, words.slice(0, -1));
  const { candidates, paths } = await completeAt(root, position, current, context);
  return { candidates: candidates.filter(({ word }) => word.startsWith(current)), paths };
}

async function findPosition(root: CommandGroup, before: readonly string[]): Promise<Position> {
  let command: Command | CommandGroup | undefined = root;
  let options: readonly OptionSpec[] = [...root.options ?? [], HELP_OPTION];
  let option: OptionSpec | undefined;
  let isBehindOptions = false;
  const words: string[] = [];
  const values = new Map<string, string>();
  for (const word of before) {
    if (option) {
      values.set(option.name, word);
      option = undefined;
    } else if (!isBehindOptions && word === "--") isBehindOptions = true;
    else if (!isBehindOptions && /^-./.test(word)) {
      const typed = parseOption(word, options);
      if (typed?.inline !== undefined) values.set(typed.spec.name, typed.inline);
      else option = typed?.spec.value === undefined ? undefined : typed.spec;
    } else if (command && "commands" in command) {
      command = await findSubcommand(command, word);
      options = withUsualOptions([
        ...command?.options ?? [],
        ...options.filter(({ name }) => !hasOption(command, name)),
      ]);
    } else {
      words.push(word);
      isBehindOptions ||= command?.arguments[words.length - 1]?.repeated === true;
    }
  }
  return { command, options, words, option, isBehindOptions, values };
}

function hasOption(command: Command | CommandGroup | undefined, name: string): boolean {
  return command?.options?.some((option) => option.name === name) === true;
}

/** Reads it as {@linkcode parseOptions} does; `undefined` if there is no such option. */
function parseOption(word: string, options: readonly OptionSpec[]) {
  const [, long, value] = /^--([^=]*)(?:=([^]*))?$/.exec(word) ?? [];
  const spec = options.find(({ name, short }) => long === undefined ? short === word[1] : name === long);
  const inline = long === undefined ? word.slice(2) || undefined : value;
  return spec && { spec, inline };
}

async function findSubcommand(
  { commands, aliases = {} }: CommandGroup,
  word: string,
): Promise<Command | CommandGroup | undefined> {
  const name = Object.hasOwn(aliases, word) ? aliases[word]! : word;
  return Object.hasOwn(commands, name) ? (await commands[name]!()).default : undefined;
}

function completeAt(
  root: CommandGroup,
  position: Position,
  current: string,
  context: CliContext,
): Completion | Promise<Completion> {
  const { command, options, words, option, isBehindOptions } = position;
  if (option) return completeValue(root, option, position, current, context);
  const typed = isBehindOptions ? undefined : parseOption(current, options);
  if (typed?.spec.value !== undefined && current.startsWith("--") && typed.inline !== undefined) {
    return completeInline(root, typed.spec, position, current, context);
  }
  if (!isBehindOptions && current.startsWith("-")) return { candidates: options.map(optionCandidate), paths: "none" };
  if (!command) return NOTHING;
  if ("commands" in command) return completeCommand(command);
  const argument = command.arguments[words.length] ?? lastIfRepeated(command);
  return argument ? completeValue(root, argument, position, current, context) : NOTHING;
}

function optionCandidate({ name, help }: OptionSpec): Candidate {
  return { word: `--${name}`, about: help };
}

function lastIfRepeated({ arguments: specs }: Command): ArgumentSpec | undefined {
  const last = specs.at(-1);
  return last?.repeated || last?.several ? last : undefined;
}

async function completeCommand({ commands }: CommandGroup): Promise<Completion> {
  const all = (await Promise.all(Object.values(commands).map((load) => load()))).map((module) => module.default);
  const shown = all.filter((command) => "commands" in command || !command.hidden);
  return { candidates: shown.map(({ name, summary }) => ({ word: name, about: summary })), paths: "none" };
}

async function completeInline(
  root: CommandGroup,
  spec: OptionSpec,
  position: Position,
  current: string,
  context: CliContext,
): Promise<Completion> {
  const prefix = `--${spec.name}=`;
  const { candidates, paths } = await completeValue(root, spec, position, current.slice(prefix.length), context);
  return { candidates: candidates.map(({ word, ...rest }) => ({ word: prefix + word, ...rest })), paths };
}

interface Completable {
  readonly name: string;
  readonly value?: ValueName;
  readonly choices?: readonly string[];
  readonly completion?: CompletionKind;
}

async function completeValue(
  root: CommandGroup,
  spec: ArgumentSpec | OptionSpec,
  position: Position,
  current: string,
  context: CliContext,
): Promise<Completion> {
  const { choices, completion, value = spec.name as ValueName }: Completable = spec;
  if (choices) return { candidates: choices.map((word) => ({ word })), paths: "none" };
  const kinds = completion ? [completion] : kindsOf(value);
  if (kinds.includes("command")) return completeCommandPath(root, position.words);
  if (kinds.includes("directory")) return { candidates: [], paths: "directories" };
  // Names are not paths, and paths have a slash.
  const isPath = current.includes("/") && kinds.some((kind) => kind === "network" || kind === "netns");
  if (kinds.includes("file")) return { candidates: [], paths: "files" };
  const request = candidateRequest(root, position, current, context);
  const found = (await Promise.all(kinds.map((kind) => findCandidates(kind, request)))).flat();
  // A pod's name has a slash too.
  if (isPath && !found.some(({ word }) => word.startsWith(current))) return { candidates: [], paths: "files" };
  return { candidates: found, paths: "none" };
}

async function completeCommandPath(root: CommandGroup, words: readonly string[]): Promise<Completion> {
  const { command } = await findPosition(root, words);
  return command && "commands" in command ? completeCommand(command) : NOTHING;
}

function candidateRequest(
  root: CommandGroup,
  { command, words, values }: Position,
  current: string,
  context: CliContext,
): CandidateRequest {
  const first = command && "arguments" in command ? command.arguments[0] : undefined;
  const network = first?.name === "NETWORK" ? words[0] : undefined;
  return {
    current,
    root,
    ...network !== undefined && { network },
    findDirectory: ({ name, env = "" }, byDefault) =>
      absolutePath(values.get(name) || context.env[env] || byDefault, context),
  };
}
