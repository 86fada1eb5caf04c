/**
 * The body of `scripts/test`: builds, checks, then runs every test file in a process of its own, so that a crash, a
 * hang or a moved namespace costs one file and is counted. Exit status 0 all passed, 1 something failed.
 *
 * Files named `*_vm_test.ts` need a kernel that this machine may not have: they run together in one virtual machine, in
 * which this script is started once more, with `--in-vm FILE…`.
 *
 * @module
 */

import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CHECKS, command, report, type Step } from "./check.ts";
import { type Counts, readJunit } from "./junit.ts";
import { ROOT, sources } from "./sources.ts";
import { obstacle } from "./vm.ts";

/** A single test; kernel tests wait for events and programs, never this long. */
const TEST_TIMEOUT_MS = 60_000;
/** A whole file: a blocking system call cannot be interrupted from inside the process. */
const FILE_TIMEOUT_MS = 600_000;

const total = { passed: 0, failed: 0 };
const skipped: string[] = [];

/** Runs one step and counts it as one test. */
function count(step: Step): void {
  const outcome = report(step);
  if (outcome.problems) total.failed++;
  else if (outcome.skipped) skipped.push(`${step.name} # ${outcome.skipped}`);
  else total.passed++;
}

/** Starts a program in its own process group and waits; what the group left running is killed. Gives how it failed. */
async function spawnGroup(command: readonly string[], log: string, directory: string): Promise<string> {
  const output = openSync(log, "a");
  const child = Bun.spawn([...command], {
    cwd: ROOT,
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
  }, FILE_TIMEOUT_MS);
  await child.exited;
  clearTimeout(timer);
  killGroup();
  process.off("SIGINT", interrupted).off("SIGTERM", interrupted);
  closeSync(output);
  if (late) return `took longer than ${FILE_TIMEOUT_MS / 1000} s`;
  return child.signalCode ? `killed by ${child.signalCode}` : child.exitCode === 0 ? "" : `status ${child.exitCode}`;
}

/** What a finished file counts as: its report, and one failure more when the process failed without naming a test. */
function verdict(junit: string, ending: string, chosen: boolean): Counts {
  const found = readJunit(junit);
  if (ending && found.failed === 0) return { ...found, failed: 1 };
  // A file that runs nothing is a mistake, unless -t chose among the tests.
  if (!ending && !chosen && found.passed + found.failed + found.skipped.length === 0) return { ...found, failed: 1 };
  return found;
}

async function runFile(file: string, flags: readonly string[], scratch: string): Promise<void> {
  const started = performance.now();
  const junit = join(scratch, "report.xml");
  const log = join(scratch, "log");
  rmSync(junit, { force: true });
  rmSync(log, { force: true });
  const reporter = ["--reporter=junit", `--reporter-outfile=${junit}`, `--timeout=${TEST_TIMEOUT_MS}`];
  const command = [process.execPath, "test", `./${file}`, ...reporter, ...flags];
  const ending = await spawnGroup(command, log, tmpdir());
  const counts = verdict(junit, ending, flags.length > 0);
  total.passed += counts.passed;
  total.failed += counts.failed;
  skipped.push(...counts.skipped.map((name) => `${file}: ${name}`));
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  const failed = counts.failed > 0 ? `, ${counts.failed} FAILED${ending ? ` (${ending})` : ""}` : "";
  const left = counts.skipped.length > 0 ? `, ${counts.skipped.length} skipped` : "";
  console.log(`${file.padEnd(40)} ${counts.passed} passed${failed}${left} (${seconds} s)`);
  if (counts.failed > 0) console.log(readFileSync(log, "utf8").trim());
}

/** Runs files in the virtual machine and adds its sums to ours; that it did not give any is a failure of its own. */
async function runInVm(files: readonly string[], flags: readonly string[], scratch: string): Promise<void> {
  const reason = obstacle();
  if (reason) {
    skipped.push(...files.map((file) => `${file} # no virtual machine: ${reason}`));
    return;
  }
  const started = performance.now();
  const log = join(scratch, "vm_log");
  const again = ["bun", "scripts/run_tests.ts", "--in-vm", ...files, ...flags];
  const ending = await spawnGroup([process.execPath, "scripts/vm.ts", ...again], log, scratch);
  let sums: RegExpExecArray | null = null;
  for (const line of readFileSync(log, "utf8").trim().split("\n")) {
    const found = SUMMARY.exec(line);
    if (found) sums = found;
    else if (line.startsWith("skipped: ")) skipped.push(line.slice("skipped: ".length));
    else console.log(line);
  }
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  console.log(`${"virtual machine".padEnd(40)} ${sums ? "ok" : `FAILED (${ending || "no sums"})`} (${seconds} s)`);
  total.passed += Number(sums?.[1] ?? 0);
  total.failed += Number(sums?.[2] ?? 1);
}

/** The last line of a run; a skipped test has a line of its own. */
const SUMMARY = /^(\d+) passed, (\d+) failed, \d+ skipped$/;

function summary(): number {
  for (const line of skipped) console.log(`skipped: ${line}`);
  if (total.passed + total.failed === 0) {
    console.log("No test ran");
    total.failed = 1;
  }
  console.log(`${total.passed} passed, ${total.failed} failed, ${skipped.length} skipped`);
  return total.failed > 0 ? 1 : 0;
}

async function runAll(filters: readonly string[], flags: readonly string[], scratch: string): Promise<void> {
  const tests = sources().filter((path) => path.endsWith("_test.ts"));
  const chosen = tests.filter((path) => filters.length === 0 || filters.some((part) => path.includes(part)));
  const inVm = chosen.filter((path) => path.endsWith("_vm_test.ts"));
  count({ name: "build dist/cni", run: () => command(process.execPath, "scripts/build.ts") });
  if (filters.length === 0 && flags.length === 0) CHECKS.forEach(count);
  if (chosen.length === 0) {
    console.log(`No test file matches ${filters.join(" ")}`);
    total.failed++;
  }
  for (const file of chosen) if (!inVm.includes(file)) await runFile(file, flags, scratch);
  if (inVm.length > 0) await runInVm(inVm, flags, scratch);
}

async function main(argv: readonly string[]): Promise<number> {
  const inVm = argv[0] === "--in-vm";
  const rest = inVm ? argv.slice(1) : argv;
  const firstFlag = rest.findIndex((argument) => argument.startsWith("-"));
  const files = firstFlag < 0 ? rest : rest.slice(0, firstFlag);
  const flags = firstFlag < 0 ? [] : rest.slice(firstFlag);
  const scratch = mkdtempSync(join(tmpdir(), "cni-test-"));
  process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));
  if (inVm) { for (const file of files) await runFile(file, flags, scratch); }
  else await runAll(files, flags, scratch);
  return summary();
}

process.exitCode = await main(process.argv.slice(2));
