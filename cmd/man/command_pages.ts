/** Uses the objects that help is made of. @module */
import type { ArgumentSpec, Command, CommandGroup, Example } from "../command.ts";
import { aliasesOf, EXIT_STATUS, formatUsage } from "../help.ts";
import { HELP_OPTION, type OptionSpec } from "../options.ts";
import { bold, escapeRoff, italic, paragraph, section, subsection, tagged, verbatim } from "./roff.ts";

interface NamedCommand {
  readonly path: readonly string[];
  readonly command: Command;
  readonly aliases: readonly string[];
}

/** Lists the commands of inner groups too, but no hidden ones. */
export async function listCommands(
  command: Command | CommandGroup,
  path: readonly string[],
  aliases: readonly string[] = [],
): Promise<readonly NamedCommand[]> {
  if (!("commands" in command)) return command.hidden ? [] : [{ path, command, aliases }];
  const listed = Object.values(command.commands).map(async (load) => {
    const { default: inner } = await load();
    return listCommands(inner, [...path, inner.name], aliasesOf(command, inner.name));
  });
  return (await Promise.all(listed)).flat();
}

export async function commandSections(command: Command | CommandGroup, path: readonly string[]): Promise<string[]> {
  const commands = await listCommands(command, path);
  const shared = "commands" in command ? command.options ?? [] : [];
  const isGroup = "commands" in command;
  return [
    section("SYNOPSIS", ...commands.map(synopsisLine)),
    section("DESCRIPTION", paragraph(description(command))),
    ...isGroup
      ? [section("COMMANDS", ...commands.map((each) => commandSubsection(each, shared)))]
      : [section("ARGUMENTS", ...command.arguments.map(argumentEntry))],
    section("OPTIONS", ...[...isGroup ? shared : command.options, HELP_OPTION].map(optionEntry)),
    section("EXAMPLES", ...(command.examples ?? []).map(exampleEntry)),
    exitStatusSection(),
  ];
}

export async function commandOverview(root: CommandGroup): Promise<string> {
  const commands = await listCommands(root, [root.name]);
  return section(
    "COMMANDS",
    ...commands.map((named) => tagged(synopsisText(named), escapeRoff(named.command.summary))),
  );
}

export async function environmentSection(root: CommandGroup): Promise<string> {
  const commands = await listCommands(root, [root.name]);
  const options = commands.flatMap(({ command }) => command.options).filter(({ env }) => env !== undefined);
  const unique = options.filter(({ env }, i) => options.findIndex((other) => other.env === env) === i);
  const entries = unique.map(({ name, env = "", help }) =>
    tagged(bold(env), `Default of ${bold(`--${name}`)}: ${escapeRoff(help)}`)
  );
  const noColor = tagged(bold("NO_COLOR"), "If set, nothing is coloured.");
  return section("ENVIRONMENT", ...entries, noColor);
}

export function exitStatusSection(): string {
  return section("EXIT STATUS", paragraph(escapeRoff(EXIT_STATUS.replace(/^exit status: /, ""))));
}

export function examplesSection({ examples = [] }: CommandGroup): string {
  return section("EXAMPLES", ...examples.map(exampleEntry));
}

function commandSubsection(named: NamedCommand, shared: readonly OptionSpec[]): string {
  const { path, command, aliases } = named;
  const isShared = ({ name }: OptionSpec) => shared.some((option) => option.name === name);
  const used = command.options.filter(isShared).map(({ name }) => bold(`--${name}`));
  return subsection(
    path.join(" "),
    synopsisLine(named),
    paragraph(description(command)),
    paragraph(aliases.length === 0 ? "" : `Other names: ${aliases.map(bold).join(", ")}.`),
    ...command.arguments.map(argumentEntry),
    ...command.options.filter((option) => !isShared(option)).map(optionEntry),
    paragraph(used.length === 0 ? "" : `It also uses ${used.join(", ")}; see OPTIONS.`),
    ...(command.examples ?? []).map(exampleEntry),
  );
}

const synopsisLine = (named: NamedCommand): string => paragraph(synopsisText(named));

function synopsisText({ path, command }: NamedCommand): string {
  const usage = command.arguments.map((argument) => formatUsage([argument])).join(" ");
  const options = command.options.length > 0 ? "[OPTION…]" : "";
  return [bold(path.join(" ")), ...[usage, options].filter((part) => part !== "").map(italic)].join(" ");
}

function description({ summary, description = "" }: Command | CommandGroup): string {
  return [sentence(summary), ...description === "" ? [] : [escapeRoff(description)]].join("\n");
}

function sentence(text: string): string {
  return escapeRoff(`${text[0]!.toUpperCase()}${text.slice(1)}.`);
}

function argumentEntry({ name, help }: ArgumentSpec): string {
  return tagged(italic(name), sentence(help));
}

function optionEntry({ name, short, value, env, help }: OptionSpec): string {
  const names = [...short ? [bold(`-${short}`)] : [], bold(`--${name}`)].join(", ");
  const variable = env === undefined ? "" : ` The variable ${bold(env)} sets its default.`;
  return tagged(value === undefined ? names : `${names} ${italic(value)}`, sentence(help) + variable);
}

function exampleEntry({ command, about }: Example): string {
  return `${paragraph(sentence(about))}\n${verbatim(command)}`;
}
