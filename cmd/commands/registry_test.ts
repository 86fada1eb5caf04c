import { expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import type { Command, CommandGroup } from "../command.ts";
import { HELP_OPTION, parseOptions } from "../options.ts";
import { CNI } from "./registry.ts";

interface Entry {
  readonly path: readonly string[];
  readonly command: Command;
  readonly groups: readonly CommandGroup[];
}

async function entriesOf(group: CommandGroup, path: readonly string[], groups: readonly CommandGroup[] = []) {
  const entries: Entry[] = [];
  for (const [name, load] of Object.entries(group.commands)) {
    const { default: command } = await load();
    expect(command.name).toBe(name);
    const words = [...path, name];
    if ("commands" in command) entries.push(...await entriesOf(command, words, [...groups, group]));
    else entries.push({ path: words, command, groups: [...groups, group] });
  }
  return entries;
}
const entries = await entriesOf(CNI, []);

test("every file is a command of the registry", () => {
  const files = readdirSync(import.meta.dir, { recursive: true, encoding: "utf8" });
  const modules = files.filter((file) => /^[^.]*(?<!_test)\.ts$/.test(file) && file !== "registry.ts");
  const groups = new Set(
    entries.flatMap(({ path }) => path.slice(0, -1).map((_, i) => path.slice(0, i + 1).join("/"))),
  );
  const known = [...groups, ...entries.map(({ path }) => path.join("/"))].map((name) => `${name.replace("-", "_")}.ts`);
  expect(modules.sort()).toEqual(known.sort());
});

for (const { path, command, groups } of entries.filter(({ command }) => !command.hidden)) {
  test(`cni ${path.join(" ")} is described: examples can be parsed, no option is there twice`, () => {
    const options = [...command.options, HELP_OPTION];
    expect(new Set(options.map(({ name }) => name)).size).toBe(options.length);
    expect(command.summary).not.toMatch(/^[A-Z]|\.$/);
    const accepted = [...options, ...groups.flatMap((group) => group.options ?? [])];
    for (const { command: line } of command.examples ?? []) {
      const own = line.split(" && ").find((part) => part.includes(`cni ${path.join(" ")}`)) ?? "";
      const argv = own.slice(own.indexOf("cni ")).split(" ").slice(1 + path.length);
      const { words, has } = parseOptions(argv, accepted, {});
      const needed = command.arguments.filter(({ optional }) => !optional).length;
      expect(has("help") || words.length >= needed).toBe(true);
    }
  });
}

test("no sentence of help is longer than 20 words", () => {
  const all = [...entries.map(({ command }) => command), ...entries.flatMap(({ groups }) => groups)];
  const texts = [...new Set(all)].flatMap((command) => [
    ...[command.summary, command.description ?? ""],
    ...[...command.options ?? [], ..."arguments" in command ? command.arguments : []].map(({ help }) => help),
    ...(command.examples ?? []).map(({ about }) => about),
  ]);
  const sentences = texts.flatMap((text) => text.replaceAll("\n", " ").split(/(?<=[.!?])\s+/));
  expect(sentences.filter((sentence) => sentence.split(/\s+/).filter((word) => /\w/.test(word)).length > 20)).toEqual(
    [],
  );
});

test("options of one name are of one kind in all commands", () => {
  const kinds = new Map<string, string>();
  for (const { name, short, value, env } of entries.flatMap(({ command }) => command.options)) {
    const kind = JSON.stringify([short, value, env]);
    expect(kinds.get(name) ?? kind).toBe(kind);
    kinds.set(name, kind);
  }
});

test("the last argument alone can be repeated, and none follows an optional one that is needed", () => {
  for (const { command } of entries) {
    expect(command.arguments.slice(0, -1).some(({ repeated }) => repeated)).toBe(false);
    const optional = command.arguments.findIndex((argument) => argument.optional);
    expect(optional < 0 ? [] : command.arguments.slice(optional).filter((argument) => !argument.optional)).toEqual([]);
  }
});
