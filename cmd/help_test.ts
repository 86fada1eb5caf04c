import { expect, test } from "bun:test";
import type { Command, CommandGroup } from "./command.ts";
import { formatCommandHelp, formatGroupHelp, formatOptions } from "./help.ts";

const eat: Command = {
  name: "eat",
  summary: "eat what is there",
  description: "Nothing is left.",
  arguments: [{ name: "NAME", help: "a dish" }, { name: "DIR", help: "where it is", optional: true }],
  options: [{ name: "timeout", short: "t", value: "TIME", env: "EAT_TIME", help: "how long" }],
  examples: [{ command: "cni eat soup", about: "eat the soup" }],
  details: (words) => Promise.resolve(`dishes: ${words.join()}`),
  run: () => {},
};

test("formatCommandHelp() says all that the object holds", async () => {
  expect(await formatCommandHelp(eat, ["meal", "eat"], ["soup"])).toBe(`usage:
  cni meal eat NAME [DIR] [OPTION…]

Eat what is there.
Nothing is left.

arguments:
  NAME  a dish
  DIR   where it is

options [environment variable]:
  -t, --timeout TIME  how long [$EAT_TIME]
  -h, --help          print this help

example:
  cni eat soup
      eat the soup

dishes: soup
`);
});

test("formatGroupHelp() lists the commands that people call, those of groups inside too", async () => {
  const load = (command: Command | CommandGroup) => () => Promise.resolve({ default: command });
  const hidden: Command = { ...eat, name: "secret", hidden: true };
  const rest: Command = { ...eat, name: "feed", summary: "feed others", arguments: [] };
  const inner: CommandGroup = { name: "for", summary: "others", commands: { feed: load(rest) } };
  const meal: CommandGroup = {
    name: "meal",
    summary: "meals",
    commands: { eat: load(eat), secret: load(hidden), for: load(inner) },
    options: [{ name: "all", help: "everything" }],
  };
  expect(await formatGroupHelp(meal, ["meal"])).toBe(`usage:
  cni meal eat NAME [DIR]  eat what is there
  cni meal for feed        feed others

Meals.

options:
      --all  everything

"cni meal COMMAND --help" describes a command.
`);
});

test("formatOptions() aligns the options and names their variables", () => {
  expect(formatOptions([
    { name: "conf-dir", value: "DIR", env: "NETCONFPATH", help: "where" },
    { name: "publish", short: "p", value: "PORTS", help: "what" },
    { name: "force", help: "anyway" },
  ])).toBe("      --conf-dir DIR   where [$NETCONFPATH]\n  -p, --publish PORTS  what\n      --force          anyway");
});
