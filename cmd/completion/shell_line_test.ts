import { expect, test } from "bun:test";
import { bashReplacement, splitShellLine } from "./shell_line.ts";

test.each([
  "cni run add",
  "cni run  add ",
  `cni 'a b' "c d" e\\ f`,
  `cni a'b'"c" "x\\"y" 'x\\'`,
  "cni --conf-dir=/x 10:20",
])("splitShellLine() splits %j as bash does", (line) => {
  const { stdout } = Bun.spawnSync(["bash", "-c", `printf '%s\\n' ${line}`]);
  const words = splitShellLine(line);
  expect(words.at(-1) === "" ? words.slice(0, -1) : words).toEqual(stdout.toString().trimEnd().split("\n"));
});

test("splitShellLine() ends with the word that is typed", () => {
  expect(splitShellLine("")).toEqual([""]);
  expect(splitShellLine("cni ")).toEqual(["cni", ""]);
  expect(splitShellLine("cni 'a b")).toEqual(["cni", "a b"]);
  expect(splitShellLine("cni a\\")).toEqual(["cni", "a\\"]);
});

test("bashReplacement() leaves out what bash keeps, and quotes the rest", () => {
  expect(bashReplacement("--command=DEL", "--command=D")).toBe("DEL");
  expect(bashReplacement("c1/eth0", "c")).toBe("c1/eth0");
  expect(bashReplacement("a b", "a")).toBe("a\\ b");
});
