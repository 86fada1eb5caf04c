import { expect, test } from "bun:test";
import { bashReplacement, parseShellLine } from "./shell_line.ts";

test.each([
  "cni run add",
  "cni run  add ",
  `cni 'a b' "c d" e\\ f`,
  `cni a'b'"c" "x\\"y" 'x\\'`,
  "cni --conf-dir=/x 10:20",
])("parseShellLine() splits %j as bash does", (line) => {
  const { stdout } = Bun.spawnSync(["bash", "-c", `printf '%s\\n' ${line}`]);
  const { words } = parseShellLine(line);
  expect(words.at(-1) === "" ? words.slice(0, -1) : words).toEqual(stdout.toString().trimEnd().split("\n"));
});

test("parseShellLine() ends with the word that is typed", () => {
  expect(parseShellLine("").words).toEqual([""]);
  expect(parseShellLine("cni ").words).toEqual(["cni", ""]);
  expect(parseShellLine("cni 'a b")).toEqual({ words: ["cni", "a b"], beforeQuote: "", quote: "'" });
  expect(parseShellLine('cni "x" y"a b')).toEqual({ words: ["cni", "x", "ya b"], beforeQuote: "y", quote: '"' });
  expect(parseShellLine("cni a\\").words).toEqual(["cni", "a\\"]);
});

test.each([
  ["--command=DEL", "--command=D", "DEL"],
  ["c1/eth0", "c", "c1/eth0"],
  ["a b", "a", "a\\ b"],
  ["😀'", "", "\\😀\\'"],
  ["a b=c", "'a b=", "a b=c"],
  ["it's", "'it", "it'\\''s"],
  ['a"$HOME b', '"a', 'a\\"\\$HOME b'],
  ["--x=a b", "--x='a", "a b"],
])("bashReplacement() writes %j behind %j as %j", (word, line, expected) => {
  expect(bashReplacement(word, parseShellLine(line))).toBe(expected);
});
