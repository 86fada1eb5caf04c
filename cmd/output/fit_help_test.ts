import { expect, test } from "bun:test";
import { fitHelp } from "./fit_help.ts";

const HELP = `usage:
  cni meal eat NAME [DIR] [OPTION…] [OPTION…]

Eat what is there.
Nothing is left, and nobody is hungry any more.

arguments:
  NAME  a dish that is on the table, as it is named there
  DIR   where it is

options:
  -t, --timeout-of-the-meal TIME  how long
  -h, --help                      print this help

example:
  cni meal eat soup with a very long spoon
      eat the soup, with a spoon that is long
`;

test("fitHelp() wraps texts, puts them below long names, and keeps commands whole", () => {
  expect(fitHelp(HELP, 40)).toBe(`usage:
  cni meal eat NAME [DIR] [OPTION…] [OPTION…]

Eat what is there. Nothing is left, and
nobody is hungry any more.

arguments:
  NAME  a dish that is on the table, as
        it is named there
  DIR   where it is

options:
  -t, --timeout-of-the-meal TIME
      how long
  -h, --help
      print this help

example:
  cni meal eat soup with a very long spoon
      eat the soup, with a spoon that is
      long
`);
});

test("fitHelp() changes nothing that fits, and nothing in a pipe", () => {
  expect(fitHelp(HELP)).toBe(HELP);
  expect(fitHelp(HELP, 60)).toBe(HELP);
});
