import { expect, test } from "bun:test";
import { type OptionSpec, parseOptions } from "./options.ts";
import { UsageError } from "../program/usage_error.ts";

const SPECS: readonly OptionSpec[] = [
  { name: "conf-dir", value: "DIR", env: "NETCONFPATH", help: "where" },
  { name: "publish", short: "p", value: "PORTS", help: "what" },
  { name: "force", help: "anyway" },
];

const parse = (...argv: string[]) => parseOptions(argv, SPECS, {});

test.each([
  [["--conf-dir", "/a"], "/a"],
  [["--conf-dir=/a"], "/a"],
  [["--conf-dir=/a=b"], "/a=b"],
  [["--conf-dir", "-"], "-"],
  [["--conf-dir", "--force"], "--force"],
  [["--conf-dir", "10"], "10"],
  [["--conf-dir", "/a", "--conf-dir", "/b"], "/b"],
  [[], undefined],
])("parseOptions() reads %j as value %j", (argv, expected) => {
  expect(parse(...argv).find("conf-dir")).toBe(expected);
});

test.each([
  [["-p", "80:80"], ["80:80"]],
  [["-p80:80"], ["80:80"]],
  [["-p", "1:1", "--publish=2:2", "x", "-p3:3"], ["1:1", "2:2", "3:3"]],
  [[], []],
])("parseOptions() reads %j as %j", (argv, expected) => {
  expect(parse(...argv).list("publish")).toEqual(expected);
});

test("parseOptions() keeps words in order, whatever they look like, and takes all behind -- for words", () => {
  const { words, has } = parse("add", "-", "--force", "010", "--", "--force", "--", "-x");
  expect(words).toEqual(["add", "-", "010", "--force", "--", "-x"]);
  expect(has("force")).toBe(true);
});

test("parseOptions() takes a variable where there is no option, and an empty one for none", () => {
  const find = (argv: string[], env: Record<string, string>) => parseOptions(argv, SPECS, env).find("conf-dir");
  expect(find([], { NETCONFPATH: "/env" })).toBe("/env");
  expect(find(["--conf-dir", "/a"], { NETCONFPATH: "/env" })).toBe("/a");
  expect(find([], { NETCONFPATH: "" })).toBeUndefined();
});

test.each([
  [["--conf-dri", "x"], 'unknown option "--conf-dri"; did you mean "--conf-dir"?'],
  [["--confdir=x"], 'unknown option "--confdir"; did you mean "--conf-dir"?'],
  [["--colour"], 'unknown option "--colour"'],
  [["-x"], 'unknown option "-x"'],
  [["--no-force"], 'unknown option "--no-force"; did you mean "--force"?'],
  [["---force"], 'unknown option "---force"; did you mean "--force"?'],
  [["--conf-dir"], 'option "--conf-dir" needs a value: DIR'],
  [["-p"], 'option "--publish" needs a value: PORTS'],
  [["--conf-dir="], 'option "--conf-dir" needs a value: DIR'],
  [["--conf-dir", "", "x"], 'option "--conf-dir" needs a value: DIR'],
  [["--force=yes"], 'option "--force" takes no value: got "yes"'],
])("parseOptions() refuses %j", (argv, message) => {
  expect(() => parse(...argv)).toThrow(new UsageError(message));
});

test("parseOptions() leaves the words of another program alone", () => {
  const { words, has } = parseOptions(["--force", "web", "ls", "--force", "--", "-x"], SPECS, {}, 1);
  expect(words).toEqual(["web", "ls", "--force", "--", "-x"]);
  expect(has("force")).toBe(true);
  expect(parseOptions(["web", "--", "-x", "--", "y"], SPECS, {}, 1).words).toEqual(["web", "-x", "--", "y"]);
});

test("parseOptions() takes only the values that there are, in upper or lower case", () => {
  const find = (value: string) =>
    parseOptions(
      ["--command", value],
      [{ name: "command", value: "COMMAND", choices: ["ADD", "DEL"], help: "what" }],
      {},
    )
      .find("command");
  expect(find("del")).toBe("DEL");
  expect(() => find("VERSION")).toThrow(new UsageError('--command must be one of ADD, DEL: got "VERSION"'));
  expect(() => find("dle")).toThrow(
    new UsageError('--command must be one of ADD, DEL: got "dle"; did you mean "DEL"?'),
  );
});
