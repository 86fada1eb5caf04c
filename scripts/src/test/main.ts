/**
 * The body of `scripts/test`: builds, checks, then runs every test file in a process of its own, so that a crash, a
 * hang or a moved namespace costs one file and is counted. Exit status 0 all passed, 1 something failed.
 *
 * Some need a kernel that this machine may not have: they run together in one virtual machine, in which this script is
 * started once more, with `--in-vm FILE…`.
 *
 * @module
 */

import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CHECKS, type CheckStep, runCommandStep, runStep } from "../check/main.ts";
import { countCases, readCases, type TestCounts } from "./junit.ts";
import { runInLanes } from "../harness/node.ts";
import { listSources, REPOSITORY_ROOT } from "../repository.ts";
import { missingRequirement } from "../vm/main.ts";
import type { KernelChoice } from "../vm/kernel.ts";
import { caseLines, countLines, isForOldest, isForVm, isForVmOnly, isSum } from "./vm_lane.ts";

/** A single test; kernel tests wait for events and programs, never this long. Emulated, all takes ten times as long. */
const TEST_TIMEOUT_MS = 60_000;
const VM_TEST_TIMEOUT_MS = 180_000;
/** A whole file: a blocking system call cannot be interrupted from inside the process. */
const FILE_TIMEOUT_MS = 600_000;
/** All files in one virtual machine: three minutes on an idle machine. */
const VM_TIMEOUT_MS = 1_800_000;

/** How many files run at once: most of what they do is waiting for the kernel, and each makes namespaces of its own. */
const LANE_COUNT = 2;
/** What measures a rate, counts pages of memory or sets the clock has nothing beside it. */
const EXCLUSIVE_FILES: readonly string[] = [
  "e2e/budget_test.ts",
  "plugins/bandwidth/throughput_test.ts",
  "plugins/host_local/clock_vm_test.ts",
];

const total = { passed: 0, failed: 0 };
const skipped: string[] = [];
/** What failed files and machines printed: shown again at the end, where a log that was cut at its start still has it. */
const failures: string[] = [];

/** Runs one step and counts it as one test. */
function count(step: CheckStep): void {
  const outcome = runStep(step);
  if (outcome.problems) {
    total.failed++;
    failures.push(`${step.name}\n${outcome.problems}`);
  } else if (outcome.skipped) skipped.push(`${step.name} # ${outcome.skipped}`);
  else total.passed++;
}

/** Starts a program in its own process group and waits; what the group left running is killed. Gives how it failed. */
async function spawnGroup(
  command: readonly string[],
  log: string,
  directory: string,
  timeoutMs: number,
): Promise<string> {
  const output = openSync(log, "a");
  const child = Bun.spawn([...command], {
    cwd: REPOSITORY_ROOT,
    env: { ...process.env, NO_COLOR: "1", TMPDIR: directory },
    stdio: ["ignore", output, output],
    detached: true,
  });
  const killGroup = () => {
    try {
      process.kill(-child.pid, "SIGKILL");
    } catch {
      // The group is gone already.
    }
  };
  const interrupted = () => {
    killGroup();
    process.exit(130);
  };
  process.on("SIGINT", interrupted).on("SIGTERM", interrupted);
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    killGroup();
  }, timeoutMs);
  await child.exited;
  clearTimeout(timer);
  killGroup();
  process.off("SIGINT", interrupted).off("SIGTERM", interrupted);
  closeSync(output);
  if (late) return `took longer than ${timeoutMs / 1000} s`;
  return child.signalCode ? `killed by ${child.signalCode}` : child.exitCode === 0 ? "" : `status ${child.exitCode}`;
}

/** Why a file failed: how its process ended, or that it ran nothing, which is a mistake unless -t chose among the tests. */
function failureOf(ending: string, counts: TestCounts, chosen: boolean): string {
  const ranNothing = counts.passed + counts.failed + counts.skipped.length === 0;
  return ending || (ranNothing && !chosen ? "ran no test" : "");
}

/** What remains says which tests failed and why. */
function withoutPasses(output: string): string {
  return output.split("\n").filter((line) => !/^(\(pass\)|passed: )/.test(line)).join("\n");
}

/** @param inVm also prints the outcome of each test */
async function runFile(file: string, flags: readonly string[], scratch: string, inVm = false): Promise<void> {
  const started = performance.now();
  const junit = join(scratch, "report.xml");
  const log = join(scratch, "log");
  rmSync(junit, { force: true });
  rmSync(log, { force: true });
  const timeout = `--timeout=${inVm ? VM_TEST_TIMEOUT_MS : TEST_TIMEOUT_MS}`;
  const reporter = ["--reporter=junit", `--reporter-outfile=${junit}`, timeout];
  const command = [process.execPath, "test", `./${file}`, ...reporter, ...flags];
  const ending = await spawnGroup(command, log, tmpdir(), FILE_TIMEOUT_MS);
  const found = countCases(readCases(junit));
  const reason = failureOf(ending, found, flags.length > 0);
  // A process may fail without naming a test.
  const counts = reason && found.failed === 0 ? { ...found, failed: 1 } : found;
  total.passed += counts.passed;
  total.failed += counts.failed;
  skipped.push(...counts.skipped.map((name) => `${file}: ${name}`));
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  const failed = counts.failed > 0 ? `, ${counts.failed} FAILED${reason ? ` (${reason})` : ""}` : "";
  const skippedText = counts.skipped.length > 0 ? `, ${counts.skipped.length} skipped` : "";
  const verdict = `${file.padEnd(40)} ${counts.passed} passed${failed}${skippedText} (${seconds} s)`;
  console.log(verdict);
  if (inVm) { for (const line of caseLines(file, junit, reason)) console.log(line); }
  if (counts.failed > 0) {
    const output = readFileSync(log, "utf8").trim();
    console.log(output);
    failures.push(`${verdict}\n${withoutPasses(output)}`);
  }
}

/** A piece of the run. @param scratch a directory that no other piece uses at the same time */
type Job = (scratch: string) => Promise<void>;

/** Runs files in the virtual machine and counts their lines; that it did not come to its end is a failure of its own. */
async function runInVm(
  kernel: KernelChoice,
  files: readonly string[],
  flags: readonly string[],
  scratch: string,
): Promise<void> {
  if (files.length === 0) return;
  const label = kernel === "oldest" ? "oldest kernel: " : "";
  const obstructed = missingRequirement(kernel);
  if (obstructed) {
    skipped.push(...files.map((file) => `${label}${file} # no virtual machine: ${obstructed}`));
    return;
  }
  const started = performance.now();
  const log = join(scratch, `vm_log_${kernel}`);
  const again = ["bun", "scripts/src/test/main.ts", "--in-vm", ...files, ...flags];
  const ending = await spawnGroup(
    [process.execPath, "scripts/src/vm/main.ts", ...kernel === "oldest" ? ["--oldest"] : [], ...again],
    log,
    scratch,
    VM_TIMEOUT_MS,
  );
  const output = readFileSync(log, "utf8").trim();
  const lane = countLines(output);
  const lines = output.split("\n").filter((line) => !isSum(line));
  console.log(lines.map((line) => line.replace(/^(passed|failed|skipped): /, `$&${label}`)).join("\n"));
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  const verdict = lane.complete ? "ok" : `FAILED (${ending || "the sums are not those of the lines"})`;
  console.log(`${`${label}virtual machine`.padEnd(40)} ${verdict} (${seconds} s)`);
  if (!lane.complete || lane.failed > 0) failures.push(`${label}virtual machine\n${withoutPasses(output)}`);
  total.passed += lane.passed;
  total.failed += lane.failed + (lane.complete ? 0 : 1);
  skipped.push(...lane.skipped.map((line) => `${label}${line}`));
}

/** @param inVm there, skipped tests have been printed */
function summary(inVm: boolean): number {
  if (!inVm) { for (const line of [...failures, ...skipped.map((line) => `skipped: ${line}`)]) console.log(line); }
  if (total.passed + total.failed === 0) {
    console.log("No test ran");
    total.failed = 1;
  }
  console.log(`${total.passed} passed, ${total.failed} failed, ${skipped.length} skipped`);
  return total.failed > 0 ? 1 : 0;
}

async function runAll(filters: readonly string[], flags: readonly string[], scratch: string): Promise<void> {
  const tests = listSources().filter((path) => path.endsWith("_test.ts"));
  const chosen = tests.filter((path) => filters.length === 0 || filters.some((part) => path.includes(part)));
  const inVm = chosen.filter(isForVm);
  count({ name: "build dist/cni", run: () => runCommandStep(process.execPath, "scripts/src/build/main.ts") });
  if (filters.length === 0 && flags.length === 0) CHECKS.forEach(count);
  if (chosen.length === 0) {
    console.log(`No test file matches ${filters.join(" ")}`);
    total.failed++;
  }
  const hostFiles = chosen.filter((path) => !isForVmOnly(path));
  // One after the other: each keeps two processors busy.
  const runMachines = async (laneDirectory: string) => {
    await runInVm("current", inVm, flags, laneDirectory);
    await runInVm("oldest", inVm.filter(isForOldest), flags, laneDirectory);
  };
  await runFiles(
    hostFiles,
    flags,
    scratch,
    inVm.length > 0 ? [runMachines] : [],
  );
}

/** Runs files on the machine that this process is on. @param first what else there is to do */
async function runFiles(files: readonly string[], flags: readonly string[], scratch: string, first?: readonly Job[]) {
  const inVm = first === undefined;
  const jobOf = (file: string): Job => (own) => runFile(file, flags, own, inVm);
  const jobs = [...first ?? [], ...files.filter((path) => !EXCLUSIVE_FILES.includes(path)).map(jobOf)];
  const directories = Array.from({ length: LANE_COUNT }, (_, lane) => mkdtempSync(join(scratch, `${lane}-`)));
  await runInLanes(LANE_COUNT, jobs.map((job) => (lane) => job(directories[lane]!)));
  for (const file of files) if (EXCLUSIVE_FILES.includes(file)) await jobOf(file)(scratch);
}

async function main(argv: readonly string[]): Promise<number> {
  const inVm = argv[0] === "--in-vm";
  const rest = inVm ? argv.slice(1) : argv;
  const firstFlag = rest.findIndex((argument) => argument.startsWith("-"));
  const files = firstFlag < 0 ? rest : rest.slice(0, firstFlag);
  const flags = firstFlag < 0 ? [] : rest.slice(firstFlag);
  const scratch = mkdtempSync(join(tmpdir(), "cni-test-"));
  process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));
  if (inVm) await runFiles(files, flags, scratch);
  else await runAll(files, flags, scratch);
  return summary(inVm);
}

process.exitCode = await main(process.argv.slice(2));
