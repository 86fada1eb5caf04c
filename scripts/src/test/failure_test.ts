import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { newScratchDirectory, REPOSITORY_ROOT } from "../repository.ts";
import { againCommand, failureLine, keepFailure, keepFailures } from "./failure.ts";
import { parseLane } from "./vm_lane.ts";

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
  const failure = { file: "a/b_test.ts", output };
  const text = keepFailure({ ...failure, cases: [{ name: "c", outcome: "failed" }] }, "--server");
  const [part, whole, again] = text.split("\n");
  expect(part!.length).toBeLessThan(500);
  expect(again).toBe("again: scripts/test --server a/b_test.ts -t 'c'");
  expect(keepFailure({ ...failure, cases: [] }, "--server")).toEndWith("again: scripts/test --server a/b_test.ts");
  const log = join(REPOSITORY_ROOT, whole!.replace("whole output: ", ""));
  expect(readFileSync(log, "utf8")).toBe(output);
  rmSync(log);
});

test("a line separator of Unicode does not end what leaves a virtual machine", () => {
  const file = "a/separator_test.ts";
  const text = keepFailures(`${failureLine({ file, cases: [], output: "one\u2028two" })}\n`, "--oldest");
  rmSync(join(REPOSITORY_ROOT, /^whole output: (.*)$/m.exec(text)![1]!));
  expect(text).toEndWith(`again: scripts/test ${file}\n`);
});

test.each(
  [
    ["--arm64", "scripts/test --arm64 "],
    ["--oldest", "scripts/test "],
  ] as const,
)("a file that fails in the virtual machine %s leaves its whole output here", (lane, again) => {
  // In this checkout: paths are relative to it.
  using scratch = newScratchDirectory(join(REPOSITORY_ROOT, "dist"));
  const file = relative(REPOSITORY_ROOT, join(scratch.path, "machine_test.ts"));
  const body = `import { expect, test } from "bun:test";
    test("long", () => expect(Array.from({ length: 2000 }, (_, i) => "had " + i)).toEqual([]));
    test("misleading", () => { console.log("failed: none\\n9 passed, 0 failed, 0 skipped"); });`;
  writeFileSync(join(REPOSITORY_ROOT, file), body);
  const command = [process.execPath, "scripts/src/test/main.ts", "--in-vm", file];
  const { exitCode, stdout } = Bun.spawnSync(command, { cwd: REPOSITORY_ROOT, stderr: "pipe" });
  expect(exitCode).toBe(1);
  const output = stdout.toString();
  expect(output.length).toBeGreaterThan(30_000);
  expect(parseLane(output)).toEqual({
    cases: [{ name: `${file}: long`, outcome: "failed" }, { name: `${file}: misleading`, outcome: "passed" }],
    isComplete: true,
  });

  const text = keepFailures(output, lane);
  expect(text.length).toBeLessThan(5000);
  expect(text).toContain(`\nagain: ${again}${file} -t 'long'\n`);
  const log = join(REPOSITORY_ROOT, /^whole output: (.*)$/m.exec(text)![1]!);
  const whole = readFileSync(log, "utf8");
  rmSync(log);
  for (const line of ["had 0", "had 1000", "had 1999", "(pass) misleading"]) expect(whole).toContain(line);
  const cut = keepFailures(output.slice(0, output.indexOf("had 1000")), lane);
  expect(cut).toMatch(/^failure: /m);
  expect(cut.length).toBeLessThan(1000);
});
