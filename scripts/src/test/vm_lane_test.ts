import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { listSources, REPOSITORY_ROOT } from "../repository.ts";
import { OLDEST } from "../vm/kernel.ts";
import { caseLines, countLines, isForOldest, isForVm, isForVmOnly } from "./vm_lane.ts";

const REPORT = `<testsuites>
  <testcase name="one &amp; two" assertions="1" />
  <testcase name="ping # needs ip" assertions="0"><skipped /></testcase>
</testsuites>`;

function linesOf(report: string, ending: string): string[] {
  const directory = mkdtempSync(join(tmpdir(), "cni-test-"));
  try {
    const path = join(directory, "report.xml");
    if (report) writeFileSync(path, report);
    return caseLines("a_vm_test.ts", path, ending);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

test("each test of a report is a line, and so is a process that failed without naming one", () => {
  const lines = ["passed: a_vm_test.ts: one & two", "skipped: a_vm_test.ts: ping # needs ip"];
  expect(linesOf(REPORT, "")).toEqual(lines);
  expect(linesOf(REPORT, "killed by SIGSEGV")).toEqual([...lines, "failed: a_vm_test.ts: killed by SIGSEGV"]);
  expect(linesOf("", "status 1")).toEqual(["failed: a_vm_test.ts: status 1"]);
});

test("the lines are what counts; without the same sums behind them the machine did not come to its end", () => {
  const lines = "passed: a: b\nfailed: a: c\nmet: passed: no\nskipped: a: d # e\n";
  const counts = { passed: 1, failed: 1, skipped: ["a: d # e"] };
  expect(countLines(`${lines}1 passed, 1 failed, 1 skipped`)).toEqual({ ...counts, complete: true });
  expect(countLines(lines)).toEqual({ ...counts, complete: false });
  expect(countLines(`${lines}2 passed, 1 failed, 1 skipped`)).toEqual({ ...counts, complete: false });
  expect(countLines("")).toEqual({ passed: 0, failed: 0, skipped: [], complete: false });
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
