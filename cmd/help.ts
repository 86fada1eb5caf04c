import type { ArgumentSpec, Command, CommandGroup } from "./command.ts";
import { alignColumns } from "./output/table.ts";
import { HELP_OPTION, type OptionSpec } from "./options.ts";

export const EXIT_STATUS = "exit status: 0 success, 1 failure, 2 wrong command line";

export function formatUsage(specs: readonly ArgumentSpec[]): string {
  return specs.map(({ name, optional, repeated, several }) => {
    const text = repeated || several ? `${name}…` : name;
    return optional ? `[${text}]` : text;
  }).join(" ");
}

export async function formatCommandHelp(
  command: Command,
  path: readonly string[],
  words: readonly string[],
  aliases: readonly string[] = [],
): Promise<string> {
  const usage = ["cni", ...path, formatUsage(command.arguments), command.options.length > 0 ? "[OPTION…]" : ""];
  return joinSections([
    `usage:\n  ${usage.filter((part) => part !== "").join(" ")}`,
    ...description(command),
    ...section("other names:", aliases.length === 0 ? "" : `  ${aliases.join(", ")}`),
    ...section("arguments:", formatRows(command.arguments.map(({ name, help }) => [name, help]))),
    ...section(optionsTitle(command.options), formatOptions([...command.options, HELP_OPTION])),
    ...examples(command),
    ...command.details ? [await command.details(words)] : [],
  ]);
}

export async function formatGroupHelp(group: CommandGroup, path: readonly string[]): Promise<string> {
  const { options = [] } = group;
  return joinSections([
    ...path.length === 0 ? [group.summary] : [],
    `usage:\n${formatRows(await usageRows(group, ["cni", ...path]))}`,
    ...path.length === 0 ? [] : description(group),
    ...section(optionsTitle(options), formatOptions(options)),
    ...examples(group),
    ...path.length === 0 ? [EXIT_STATUS] : [`"cni ${path.join(" ")} COMMAND --help" describes a command.`],
    ...group.details ? [await group.details([])] : [],
  ]);
}

async function usageRows(group: CommandGroup, path: readonly string[]): Promise<Row[]> {
  const rows: Row[] = [];
  for (const load of Object.values(group.commands)) {
    const { default: command } = await load();
    const words = [...path, command.name];
    if ("commands" in command) rows.push(...await usageRows(command, words));
    else if (!command.hidden) {
      const aliases = aliasesOf(group, command.name);
      const others = aliases.length === 0 ? "" : ` (also ${aliases.join(", ")})`;
      rows.push([[...words, formatUsage(command.arguments)].join(" ").trimEnd(), command.summary + others]);
    }
  }
  return rows;
}

export function aliasesOf({ aliases = {} }: CommandGroup, name: string): string[] {
  return Object.keys(aliases).filter((alias) => aliases[alias] === name);
}

type Row = readonly [left: string, right: string];

export function formatRows(rows: readonly Row[]): string {
  return alignColumns(rows).map((line) => `  ${line}`).join("\n");
}

export function formatOptions(specs: readonly OptionSpec[]): string {
  return formatRows(specs.map(({ name, short, value, help, env }) => [
    `${short ? `-${short}, ` : "    "}--${name}${value === undefined ? "" : ` ${value}`}`,
    `${help}${env ? ` [$${env}]` : ""}`,
  ]));
}

function optionsTitle(options: readonly OptionSpec[]): string {
  return options.some(({ env }) => env) ? "options [environment variable]:" : "options:";
}

function description({ summary, description = "" }: Command | CommandGroup): string[] {
  const sentence = `${summary[0]!.toUpperCase()}${summary.slice(1)}.`;
  return [description === "" ? sentence : `${sentence}\n${description}`];
}

function examples({ examples = [] }: Command | CommandGroup): string[] {
  const lines = examples.map(({ command, about }) => `  ${command}\n      ${about}`);
  return section(examples.length === 1 ? "example:" : "examples:", lines.join("\n"));
}

function section(title: string, body: string): string[] {
  return body === "" ? [] : [`${title}\n${body}`];
}

function joinSections(sections: readonly string[]): string {
  return `${sections.join("\n\n")}\n`;
}
