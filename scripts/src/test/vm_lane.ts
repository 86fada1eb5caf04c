/**
 * The tests that run in the virtual machine, and how the outcome of each comes back from there: as a line of its own, so that a
 * test that has ended counts even if the machine fails.
 *
 * @module
 */

import { readCases, type TestCase } from "./junit.ts";

/** Tests that need a kernel which this machine may not have. */
const NEEDS_KERNEL = /_vm_test\.ts$/;
/** Tests that run here and there: that kernel is an older one. */
const ON_BOTH = /^e2e\/distroless_test\.ts$/;

/** Tests that run with the oldest kernel as well: each plugin from ADD to GC, and a chain with traffic, by the compiled binary. */
const ON_OLDEST = /^e2e\/(every_plugin|chain)_vm_test\.ts$/;

/** Whether a test file cannot run on this machine. */
export const isForVmOnly = (path: string): boolean => NEEDS_KERNEL.test(path);

/** Whether a test file is run in the virtual machine. */
export const isForVm = (path: string): boolean => NEEDS_KERNEL.test(path) || ON_BOTH.test(path);

/** Whether a test file is run in the virtual machine with the oldest kernel as well. */
export const isForOldest = (path: string): boolean => ON_OLDEST.test(path);

/** The lines of a test file: `passed: FILE: NAME` and so on. @param ending how the process ended if it went wrong */
export function caseLines(file: string, report: string, ending: string): string[] {
  const cases: TestCase[] = [...readCases(report)];
  if (ending && !cases.some(({ outcome }) => outcome === "failed")) cases.push({ name: ending, outcome: "failed" });
  return cases.map(({ name, outcome }) => `${outcome}: ${file}: ${name}`);
}

/** What a run in the virtual machine printed. */
export interface LaneOutcome {
  readonly passed: number;
  readonly failed: number;
  /** `FILE: NAME # REASON` */
  readonly skipped: readonly string[];
  /** Whether it came to its end, and its own sums are those of its lines. */
  readonly complete: boolean;
}

const SUMS = /^(\d+) passed, (\d+) failed, (\d+) skipped$/;

/** Whether it is the last line of a run: its sums are no part of ours. */
export const isSum = (line: string): boolean => SUMS.test(line);

/** Counts the lines of a run. */
export function countLines(output: string): LaneOutcome {
  const of = (outcome: TestCase["outcome"]) =>
    Array.from(output.matchAll(new RegExp(`^${outcome}: (.*)`, "gm")), ([, what]) => what!);
  const [passed, failed, skipped] = [of("passed").length, of("failed").length, of("skipped")];
  const sums = SUMS.exec(output.trimEnd().split("\n").at(-1)!)?.slice(1).map(Number).join();
  return { passed, failed, skipped, complete: sums === [passed, failed, skipped.length].join() };
}
