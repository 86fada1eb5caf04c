import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { listSources, REPOSITORY_ROOT } from "../repository.ts";
import { OLDEST } from "../vm/machine.ts";
import type { TestCase } from "./junit.ts";
import { casesOf } from "./run_file.ts";
import { ARM64_SAMPLE, caseLine, isForArm64, isForOldest, isForVm, isForVmOnly, parseLane } from "./vm_lane.ts";

const PASSED: TestCase = { name: "one & two", outcome: "passed" };
const SKIPPED: TestCase = { name: "ping # needs ip", outcome: "skipped" };

test("each test of a file is a line, and so is a process that failed without naming one", () => {
  const linesOf = (cases: readonly TestCase[], ending: string) => casesOf("a_vm_test.ts", cases, ending).map(caseLine);
  const lines = ["passed: a_vm_test.ts: one & two", "skipped: a_vm_test.ts: ping # needs ip"];
  expect(linesOf([PASSED, SKIPPED], "")).toEqual(lines);
  expect(linesOf([PASSED, SKIPPED], "killed by SIGSEGV")).toEqual([
    ...lines,
    "failed: a_vm_test.ts: killed by SIGSEGV",
  ]);
  expect(linesOf([{ name: "bad", outcome: "failed" }], "status 1")).toEqual(["failed: a_vm_test.ts: bad"]);
  expect(linesOf([], "status 1")).toEqual(["failed: a_vm_test.ts: status 1"]);
});

test("the lines are what counts; without the same sums behind them the machine did not come to its end", () => {
  const lines = "passed: a: b\nfailed: a: c\nmet: passed: no\nskipped: a: d # e\n";
  const cases = [["passed", "a: b"], ["failed", "a: c"], ["skipped", "a: d # e"]].map(([outcome, name]) => ({
    ...{ name, outcome },
  }));
  expect(parseLane(`${lines}1 passed, 1 failed, 1 skipped`)).toEqual({ cases, isComplete: true } as never);
  expect(parseLane(lines)).toEqual({ cases, isComplete: false } as never);
  expect(parseLane(`${lines}2 passed, 1 failed, 1 skipped`).isComplete).toBe(false);
  expect(parseLane("")).toEqual({ cases: [], isComplete: false });
});

test("files that are for the virtual machine, and those that run on both", () => {
  const paths = ["plugins/vrf/plugin_vm_test.ts", "e2e/distroless_test.ts", "plugins/ptp/plugin_test.ts"];
  expect(paths.map(isForVm)).toEqual([true, true, false]);
  expect(paths.map(isForVmOnly)).toEqual([true, false, false]);
});

test("every plugin and a whole chain run with the oldest kernel as well", () => {
  expect(listSources().filter(isForOldest)).toEqual(["e2e/chain_vm_test.ts", "e2e/every_plugin_vm_test.ts"]);
  expect(readFileSync(join(REPOSITORY_ROOT, "README.md"), "utf8")).toContain(`Linux ${OLDEST.version} `);
});

test("every plugin, the chain, hardening, servers and confinement run on the other processor as well", () => {
  const names = ["every_plugin_vm", "chain_vm", "hardening", "serve/pairs", "restricted_host"].map((name) =>
    `e2e/${name}_test.ts`
  );
  const paths = [...names, "ffi/sys/confinement_test.ts"];
  expect(listSources().filter(isForArm64)).toEqual(expect.arrayContaining(paths));
  expect(isForArm64("plugins/ptp/plugin_test.ts")).toBe(false);
  expect(listSources().filter(isForArm64)).toEqual(expect.arrayContaining([...ARM64_SAMPLE]));
});
