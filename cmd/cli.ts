import { formatErrorObject } from "../plugins/lib/protocol/serve.ts";
import { hasPlugin, pluginNames } from "../plugins/registry.ts";
import { CniError, Code } from "../spec/error.ts";
import { CNI } from "./commands/registry.ts";
import type { Command, CommandContext, CommandGroup } from "./command.ts";
import type { CliContext } from "../program/start.ts";
import { HELP_OPTION, type OptionSpec, type ParsedOptions, parseOptions, UnknownOptionError } from "./options.ts";
import { UsageError } from "../program/usage_error.ts";
import { MESSAGE_INDENT, printMessage } from "./output/message.ts";
import { escapeUnprintable, printableJson } from "../spec/printable.ts";
import { openScreen, type Screen } from "./output/screen.ts";
import { printFinalError, printStderr, printStdout } from "../ffi/sys/stdio.ts";
import { suggestion } from "../spec/suggest.ts";
import { findTraceRequest } from "./trace/options.ts";
import { explainUnknownOption, resolveFormat, withUsualOptions } from "./usual_options.ts";

const MAX_LINE_LENGTH = 160;
const MAX_DETAIL_LINES = 20;
const SUCCESS = 0;
const FAILURE = 1;
const USAGE_ERROR = 2;

interface CommandLine {
  readonly path: string[];
  /** The outermost group comes first. */
  readonly groups: CommandGroup[];
  failureStatus?: number | undefined;
}

/** Never throws. @returns the exit status */
export async function runCommandLine(
  argv: readonly string[],
  context: Omit<CommandContext, "formatHelp" | "root">,
): Promise<number> {
  const line: CommandLine = { path: [], groups: [] };
  try {
    if (argv.length === 0) return await answerWithoutArguments(context);
    return await runInGroup(CNI, argv, line, { ...context, formatHelp, root: CNI });
  } catch (error) {
    context.onFailure?.(CniError.from(error).code);
    const screen = openScreen(2, context.env);
    if (error instanceof UsageError) return reportUsageError(error, line.path, asksForJson(argv), screen);
    reportFailure(error, screen);
    return line.failureStatus ?? FAILURE;
  }
}

/** With CNI_COMMAND, an engine calls a plugin that does not exist here. */
async function answerWithoutArguments({ programName, env }: CliContext): Promise<number> {
  if (env.CNI_COMMAND) {
    const error = new CniError(Code.InvalidConfig, `Cannot run plugin "${programName}": no such plugin is built in`, {
      details: `built in are ${pluginNames().join(", ")}`,
    });
    printStdout(formatErrorObject(error, ""));
    return FAILURE;
  }
  printStderr((await formatHelp([])).trimEnd());
  return USAGE_ERROR;
}

async function runInGroup(
  group: CommandGroup,
  argv: readonly string[],
  line: CommandLine,
  context: CommandContext,
): Promise<number> {
  line.groups.push(group);
  const { word = group.defaultCommand, rest, wantsHelp } = await splitAtCommand(group, argv);
  if (wantsHelp) return printHelp(await formatHelp(line.path));
  if (word === undefined) {
    const commands = (await loadCommands(group)).filter((command) => "commands" in command || !command.hidden);
    throw new UsageError(`"${line.path.join(" ") || CNI.name}" needs a command: ${namesOf(commands).join(", ")}`);
  }
  const command = await findCommand(group, word, line.path);
  line.path.push(command.name);
  return "commands" in command ? runInGroup(command, rest, line, context) : runCommand(command, rest, line, context);
}

async function splitAtCommand(group: CommandGroup, argv: readonly string[]) {
  const [first = "", ...rest] = argv;
  const isKnown = Object.hasOwn({ ...group.commands, ...group.aliases }, first);
  if (isKnown || !/^(-.|help$)/.test(first)) return { word: argv[0], rest, wantsHelp: false };
  if (first === "help") return { word: undefined, rest, wantsHelp: true };
  const { words, has } = parseOptions(argv, await optionsInGroup(group), {}, 0);
  const before = argv.slice(0, argv.length - words.length);
  const [word, ...others] = words;
  return { word, rest: [...before, ...others], wantsHelp: word === undefined && has(HELP_OPTION.name) };
}

async function optionsInGroup(group: CommandGroup): Promise<readonly OptionSpec[]> {
  const commands = await loadCommands(group);
  return withUsualOptions([
    ...group.options ?? [],
    ...commands.flatMap((command) => command.options ?? []),
    HELP_OPTION,
  ]);
}

async function loadCommands({ commands }: CommandGroup): Promise<readonly (Command | CommandGroup)[]> {
  return (await Promise.all(Object.values(commands).map((load) => load()))).map((module) => module.default);
}

function namesOf(commands: readonly (Command | CommandGroup)[]): string[] {
  return commands.map(({ name }) => name);
}

async function findCommand(
  group: CommandGroup,
  word: string,
  path: readonly string[],
): Promise<Command | CommandGroup> {
  const { commands, aliases = {} } = group;
  const name = Object.hasOwn(aliases, word) ? aliases[word]! : word;
  if (Object.hasOwn(commands, name)) return (await commands[name]!()).default;
  throw new UsageError(`unknown command "${[...path, word].join(" ")}"${await commandHint(group, word)}`);
}

async function commandHint(group: CommandGroup, word: string): Promise<string> {
  if (group === CNI && hasPlugin(word)) return `; "${word}" is a plugin: cni plugin ${word}`;
  const parent = (await loadCommands(group)).find((command) =>
    "commands" in command && Object.hasOwn({ ...command.commands, ...command.aliases }, word)
  );
  return parent ? `; did you mean "${parent.name} ${word}"?` : suggestion(word, Object.keys(group.commands));
}

async function runCommand(
  command: Command,
  argv: readonly string[],
  line: CommandLine,
  context: CommandContext,
): Promise<number> {
  const options = await parseCommandOptions(command, argv, line, context);
  if (options.has(HELP_OPTION.name)) return printHelp(await formatHelp([...line.path, ...options.words]));
  const words = await commandWords(command, options.words, line);
  line.failureStatus = command.failureStatus;
  const run = () => command.run({ ...options, words }, context);
  try {
    return await runOrTrace(options, line, context, run) ?? SUCCESS;
  } catch (error) {
    if (options.has("json") && !(error instanceof UsageError)) printErrorDocument(error);
    throw error;
  }
}

async function runOrTrace(
  options: ParsedOptions,
  { path }: CommandLine,
  context: CommandContext,
  run: () => ReturnType<Command["run"]>,
): Promise<number | void> {
  const request = findTraceRequest(options);
  if (!request) return run();
  const { runTraced } = await import("./trace/traced_call.ts");
  return runTraced(["cni", ...path].join(" "), request, context, run);
}

async function parseCommandOptions(
  command: Command,
  argv: readonly string[],
  { path, groups }: CommandLine,
  { env }: CommandContext,
): Promise<ParsedOptions> {
  const accepted = withUsualOptions([
    ...command.options,
    ...groups.flatMap(({ options = [] }) => options),
    HELP_OPTION,
  ]);
  const repeated = command.arguments.findIndex((argument) => argument.repeated);
  try {
    return resolveFormat(parseOptions(argv, accepted, env, repeated < 0 ? Infinity : repeated));
  } catch (error) {
    if (!(error instanceof UnknownOptionError)) throw error;
    const explained = explainUnknownOption(error, accepted);
    if (explained) throw explained;
    const owners = await commandsWithOption(error.option, groups.at(-1)!);
    if (owners.length === 0) throw error;
    const names = namesOf(owners).map((name) => `"${[...path.slice(0, -1), name].join(" ")}"`);
    throw new UsageError(`option "${error.option}" belongs to ${names.join(", ")}`);
  }
}

async function commandsWithOption(option: string, group: CommandGroup): Promise<readonly (Command | CommandGroup)[]> {
  const commands = await loadCommands(group);
  const accepts = await Promise.all(commands.map((command) => acceptsOption(command, option)));
  return commands.filter((_, i) => accepts[i]);
}

/** A group accepts what one of its commands accepts. */
async function acceptsOption(command: Command | CommandGroup, option: string): Promise<boolean> {
  const { options = [] } = command;
  if (options.some(({ name, short }) => option === `--${name}` || option === `-${short}`)) return true;
  return "commands" in command && (await commandsWithOption(option, command)).length > 0;
}

async function commandWords(
  command: Command,
  words: readonly string[],
  { path, groups }: CommandLine,
): Promise<readonly string[]> {
  const name = path.join(" ");
  const { arguments: specs } = command;
  const missing = specs.find(({ optional }, i) => !optional && !words[i]);
  if (missing) {
    const hints = command.examples?.slice(0, 1).map((example) => `for example: ${example.command}`);
    throw new UsageError(`"${name}" needs ${missing.name}, ${missing.help}`, hints);
  }
  for (const [i, { choices }] of specs.entries()) {
    if (!choices || words[i] === undefined || choices.includes(words[i])) continue;
    throw new UsageError(`"${name}" takes ${choices.join(", ")}: got "${words[i]}"${suggestion(words[i], choices)}`);
  }
  if (words.length <= specs.length || specs.at(-1)?.repeated || specs.at(-1)?.several) return words;
  const surplus = words.slice(specs.length);
  if (groups.some(({ ignoresSurplus }) => ignoresSurplus)) {
    printMessage(`cni: Ignoring what follows the arguments: "${surplus.join(" ")}"`);
    return words.slice(0, specs.length);
  }
  const { formatUsage } = await import("./help.ts");
  const usage = specs.length === 0 ? "no argument" : `${formatUsage(specs)} alone`;
  throw new UsageError(`"${name}" takes ${usage}: got "${words.join(" ")}"`);
}

async function formatHelp(words: readonly string[]): Promise<string> {
  const { fitHelp } = await import("./output/fit_help.ts");
  return fitHelp(await formatWholeHelp(words), openScreen(1, {}).columns);
}

async function formatWholeHelp(words: readonly string[]): Promise<string> {
  const { aliasesOf, formatCommandHelp, formatGroupHelp } = await import("./help.ts");
  const path: string[] = [];
  let aliases: readonly string[] = [];
  let command: Command | CommandGroup = CNI;
  for (const [i, word] of words.entries()) {
    if (!("commands" in command)) return formatCommandHelp(command, path, words.slice(i), aliases);
    const group: CommandGroup = command;
    command = await findCommand(group, word, path);
    aliases = aliasesOf(group, command.name);
    path.push(command.name);
  }
  return "commands" in command ? formatGroupHelp(command, path) : formatCommandHelp(command, path, [], aliases);
}

function printHelp(text: string): number {
  printStdout(text);
  return SUCCESS;
}

function asksForJson(argv: readonly string[]): boolean {
  const end = argv.indexOf("--");
  const line = argv.slice(0, end < 0 ? undefined : end).join("\n");
  return /^--(json|format[=\n]json)$/im.test(line);
}

function printErrorDocument(error: unknown): void {
  printFinalError(`${printableJson(formatErrorObject(error, ""))}\n`);
}

function reportUsageError(
  { message, hints }: UsageError,
  path: readonly string[],
  isJson: boolean,
  screen: Screen,
): number {
  // The help for the command "help" names no command.
  const words = path[0] === "help" ? [] : path;
  const details = [...hints, `see "${["cni", ...words, "--help"].join(" ")}"`];
  if (isJson) printErrorDocument(new CniError(Code.InvalidEnvironment, message, { details: details.join("; ") }));
  printError(message, details.map(oneLine), screen);
  return USAGE_ERROR;
}

function reportFailure(error: unknown, screen: Screen): void {
  const { message, details } = CniError.from(error);
  printError(message, detailLines(details), screen);
}

function printError(message: string, details: readonly string[], { style }: Screen): void {
  printMessage([`${style("red", "cni:")} ${oneLine(message)}`, ...details].join(`\n${MESSAGE_INDENT}`));
}

function detailLines(details = ""): string[] {
  if (details === "") return [];
  if (details.length <= MAX_LINE_LENGTH) return [oneLine(details)];
  const parts = details.split("; ").map(oneLine);
  const more = parts.length - MAX_DETAIL_LINES;
  return more > 1 ? [...parts.slice(0, MAX_DETAIL_LINES), `and ${more} more: --json prints all`] : parts;
}

/** Text of others must not break the line or control the terminal. */
function oneLine(text: string): string {
  return escapeUnprintable(text.trim().replace(/\s*\n\s*/g, "; "));
}
