import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";
import { againCommand, keepFailure } from "./failure.ts";

const NAME = `it's "one" of $(two) [a|b] {c} *`;

test("the line that repeats a test chooses it alone, by a shell and bun test", () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-again-"));
  const body = `import { test } from "bun:test"; test(${JSON.stringify(NAME)}, () => {}); test("another", () => {});`;
  writeFileSync(join(directory, "names_test.ts"), body);
  const command = againCommand("./names_test.ts", "", NAME).replace("scripts/test", `"$0" test`);
  const { stderr } = Bun.spawnSync(["sh", "-c", command, process.execPath], { cwd: directory, stderr: "pipe" });
  rmSync(directory, { recursive: true });
  expect(stderr.toString()).toMatch(/ 1 pass\n 1 filtered out\n 0 fail/);
});

test("the whole output of a failed file is kept, and named", () => {
  const output = "x".repeat(1000);
  const text = keepFailure("a/b_test.ts", "--server", [{ name: "c", outcome: "failed" }], output);
  const [part, whole, again] = text.split("\n");
  expect(part!.length).toBeLessThan(500);
  expect(again).toBe("again: scripts/test --server a/b_test.ts -t 'c'");
  expect(keepFailure("a/b_test.ts", "--server", [], output)).toEndWith("again: scripts/test --server a/b_test.ts");
  const log = join(REPOSITORY_ROOT, whole!.replace("whole output: ", ""));
  expect(readFileSync(log, "utf8")).toBe(output);
  rmSync(log);
});
