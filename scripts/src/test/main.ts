/**
 * The body of `scripts/test`. Tests that need another kernel run in one virtual machine, where this script runs as `--in-vm FILE…`. With
 * `--server`, it runs only the tests that call the compiled binary, all of them with a server; with `--arm64`, those of that processor's
 * virtual machine. `--all` leaves no file and no case out; `--minutes N` has more files than a usual run, or fewer. A longer run than
 * the usual one tries a sample of the other processor's lane as well.
 *
 * @module
 */
import { existsSync, mkdtempSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { CHECKS, runCommandStep, runStep, verdictLine } from "../check/main.ts";
import { runInLanes } from "../harness/node.ts";
import { testedPlugins } from "../../../testing/fixture.ts";
import { SAMPLE_VARIABLE, sampleOf } from "../../../testing/sample.ts";
import { listSources, newScratchDirectory, REPOSITORY_ROOT } from "../repository.ts";
import { type MachineName, MACHINES } from "../vm/machine.ts";
import { missingRequirement } from "../vm/main.ts";
import { failureLine, keepFailure, keepFailures, keepOutput } from "./failure.ts";
import type { TestCase } from "./junit.ts";
import { kernelObstacle, needsKernel } from "./kernel_files.ts";
import { casesOf, runFile, spawnGroup } from "./run_file.ts";
import { chooseFiles, LONG_FILES, turnOfCommit } from "./selection.ts";
import { isServed, SERVED_SAMPLE } from "./served_files.ts";
import {
  ARM64_SAMPLE,
  caseLine,
  formatSums,
  isForArm64,
  isForOldest,
  isForVm,
  isForVmOnly,
  isSum,
  parseLane,
} from "./vm_lane.ts";

/** How many files run at once: most of what they do is waiting for the kernel, and each makes namespaces of its own. */
const LANE_COUNT = 3;
/** These measure a rate or processor time, count pages of memory or processes, or set the clock: nothing runs beside them. */
const EXCLUSIVE_FILES: readonly string[] = [
  "e2e/budget_test.ts",
  "plugins/bandwidth/throughput_test.ts",
  "cluster/network/scale_test.ts",
  "plugins/host_local/clock_vm_test.ts",
  "scripts/src/kubernetes/main_test.ts",
];

/** The plugins that each run tries in the virtual machine; of the others, it tries a sample. */
const FOR_EACH_RUN: Readonly<Record<MachineName, readonly string[]>> = {
  // The kernel of the machine itself may lack what these need.
  current: ["bridge", "dummy", "ipvlan", "macvlan", "vlan", "vrf"],
  // Only macvlan has a key that this kernel lacks.
  oldest: ["macvlan"],
  // Calls of the compiled binary; what it does differently lies below the plugins.
  arm64: ["bridge"],
};

/** How long a run without words takes on two idle processors. */
const USUAL_MINUTES = 6;
/** Building and checking come before, all short files and those with a server are in each run; a machine boots. */
const FIXED_SECONDS = 45, SHORT_LANE_SECONDS = 440;
/** A first run makes the place before, and downloads kernels and programs for virtual machines. */
const FIRST_RUN_SECONDS = 120;
/** What the sample of the other processor takes of one lane. */
const ARM64_LANE_SECONDS = 240;

const [first] = process.argv.slice(2);
const inVm = first === "--in-vm";
const onlyServed = first === "--server";
const onlyArm64 = first === "--arm64";
const runsAll = first === "--all";
const minutes = first === "--minutes" ? Number(process.argv[3]) : USUAL_MINUTES;
if (!(minutes > 0)) {
  console.error(`scripts/test: --minutes needs a number: got "${process.argv[3] ?? ""}"`);
  process.exit(2);
}
const isLonger = minutes > USUAL_MINUTES;
const hasMode = inVm || onlyServed || onlyArm64 || runsAll;
const words = process.argv.slice(first === "--minutes" ? 4 : hasMode ? 3 : 2);
const firstFlag = words.findIndex((word) => word.startsWith("-"));
const [filters, flags] = firstFlag < 0 ? [words, []] : [words.slice(0, firstFlag), words.slice(firstFlag)];
if (filters.length === 0 && !hasMode) process.env[SAMPLE_VARIABLE] = "3";
const directory = newScratchDirectory();
const scratch = directory.path;
process.on("exit", () => directory[Symbol.dispose]());

const all: TestCase[] = [];
/** The output of failed files and machines. It is shown again at the end, where a log that was cut at its start still has it. */
const failures: string[] = [];
/** By name of file or machine. */
const seconds = new Map<string, number>();

function printVerdict(name: string, verdict: string, started: number, problem: string): void {
  seconds.set(name, (performance.now() - started) / 1000);
  const line = verdictLine(name, verdict, started);
  console.log(line);
  // The rest says which tests failed and why.
  if (problem) failures.push(`${line}\n${problem.replace(/^(\(pass\)|passed: ).*\n?/gm, "")}`);
}

function countStep(step: Parameters<typeof runStep>[0]): void {
  const problems = runStep(step);
  if (problems) failures.push(`${step.name}\n${problems}`);
  all.push({ name: step.name, outcome: problems ? "failed" : "passed" });
}

/** @param serverEnv for a run with a server */
async function countFile(file: string, directory: string, serverEnv?: Readonly<Record<string, string>>): Promise<void> {
  const started = performance.now();
  const { cases: found, ending, output } = await runFile(file, directory, {
    flags,
    inVm,
    ...serverEnv && { serverEnv },
  });
  const title = serverEnv ? `${file} with a server` : file;
  const cases = casesOf(title, found, ending);
  all.push(...cases);
  const count = (wanted: string) => cases.filter(({ outcome }) => outcome === wanted).length;
  const [failed, skipped] = [count("failed"), count("skipped")];
  const failedText = failed > 0 ? `, ${failed} FAILED${ending && ` (${ending})`}` : "";
  const verdict = `${count("passed")} passed${failedText}${skipped > 0 ? `, ${skipped} skipped` : ""}`;
  const failure = { file, cases: found, output };
  const keep = () => inVm ? failureLine(failure) : keepFailure(failure, serverEnv ? "--server" : "");
  const problem = failed > 0 ? keep() : "";
  printVerdict(title, verdict, started, problem);
  if (inVm) { for (const line of cases.map(caseLine)) console.log(line); }
  if (failed > 0) console.log(problem);
}

/** What the tests of a virtual machine are called. */
const LABELS: Readonly<Record<MachineName, string>> = { current: "", oldest: "oldest kernel: ", arm64: "arm64: " };

/** Runs files in the virtual machine and counts their lines; that it did not come to its end is a failure of its own. */
async function countInVm(machine: MachineName, files: readonly string[], directory: string): Promise<void> {
  if (files.length === 0) return;
  const label = LABELS[machine];
  const name = `${label}virtual machine`;
  const obstacle = missingRequirement(machine);
  if (obstacle) {
    const reason = `# no virtual machine: ${obstacle}`;
    all.push(...files.map((file) => ({ name: `${label}${file} ${reason}`, outcome: "skipped" as const })));
    return;
  }
  const started = performance.now();
  const plugins = new Set([...machine === "arm64" ? [] : sampleOf(testedPlugins()), ...FOR_EACH_RUN[machine]]);
  const step = process.env[SAMPLE_VARIABLE];
  const sample = step ? ["env", `${SAMPLE_VARIABLE}=${step}`, `TEST_PLUGINS=${[...plugins].join(",")}`] : [];
  const again = [...sample, "bun", "scripts/src/test/main.ts", "--in-vm", ...files, ...flags];
  const machineFlag = machine === "current" ? [] : [`--${machine}`];
  const command = [process.execPath, "scripts/src/vm/main.ts", ...machineFlag, ...again];
  const timeoutMs = MACHINES[machine].timeoutS * 1000;
  const { ending, output } = await spawnGroup(command, join(directory, "vm_log"), directory, timeoutMs);
  const { cases, isComplete } = parseLane(output);
  const lines = output.split("\n").filter((line) => !isSum(line))
    .map((line) => line.replace(/^(passed|failed|skipped): /, `$&${label}`));
  const text = keepFailures(lines.join("\n"), `--${machine}`);
  console.log(text);
  all.push(...cases.map((testCase) => ({ ...testCase, name: `${label}${testCase.name}` })));
  if (!isComplete) all.push({ name, outcome: "failed" });
  const verdict = isComplete ? "ok" : `FAILED (${ending || "the sums are not those of the lines"})`;
  const isGood = isComplete && cases.every(({ outcome }) => outcome !== "failed");
  const problem = isComplete ? text : `${text}\n${keepOutput("virtual machine", `--${machine}`, output)}`;
  printVerdict(name, verdict, started, isGood ? "" : problem);
}

/** What a file takes of the lanes' time: a machine's files run in one lane, three at once. */
function laneSeconds(file: string, seconds: number): number {
  if (EXCLUSIVE_FILES.includes(file)) return seconds * LANE_COUNT;
  return isForVmOnly(file) ? seconds / LANE_COUNT : seconds;
}

function isFirstRun(): boolean {
  const downloads = join(REPOSITORY_ROOT, "dist/vm");
  return !existsSync(downloads) || readdirSync(downloads).length === 0;
}

function chooseTests(): readonly string[] {
  const tests = listSources().filter((path) => path.endsWith("_test.ts"));
  if (filters.length > 0) return tests.filter((path) => filters.some((part) => path.includes(part)));
  if (hasMode) return tests;
  const costs = Object.entries(LONG_FILES).map(([file, seconds]) => [file, laneSeconds(file, seconds)] as const);
  const fixed = SHORT_LANE_SECONDS + (isLonger ? ARM64_LANE_SECONDS : 0);
  const around = FIXED_SECONDS + (isFirstRun() ? FIRST_RUN_SECONDS : 0);
  const seconds = LANE_COUNT * (minutes * 60 - around) - fixed;
  const chosen = chooseFiles(tests, seconds, turnOfCommit(), Object.fromEntries(costs));
  if (chosen.length < tests.length) {
    const part = `${chosen.length} of ${tests.length} test files: all short ones, of the others some, by the commit`;
    console.log(`Running ${part}; scripts/test --all runs all`);
  }
  return chosen;
}

function build(target: string, ...words: readonly string[]): void {
  const run = () => runCommandStep(process.execPath, "scripts/src/build/main.ts", ...words);
  countStep({ name: `build ${target}`, run });
}

/** Files for the other processor. */
function chooseForArm64(chosen: readonly string[]): readonly string[] {
  if (onlyArm64) return filters.length > 0 ? chosen : chosen.filter(isForArm64);
  return isLonger && filters.length === 0 ? ARM64_SAMPLE : [];
}

/** @returns those that this machine can run */
function skipWithoutKernel(files: readonly string[]): readonly string[] {
  const obstacle = kernelObstacle();
  const skipped = obstacle === "" ? [] : files.filter(needsKernel);
  if (skipped.length > 0) {
    console.log(`Skipping ${skipped.length} of ${files.length} test files, which work on the kernel: ${obstacle}`);
  }
  all.push(...skipped.map((file) => ({ name: `${file} # ${obstacle}`, outcome: "skipped" as const })));
  return files.filter((file) => !skipped.includes(file));
}

async function runAll(): Promise<void> {
  const wanted = chooseTests();
  const chosen = onlyArm64 ? wanted : skipWithoutKernel(wanted);
  const arm64Files = chooseForArm64(chosen);
  if (!onlyArm64) build("dist/cni");
  if (arm64Files.length > 0 && !missingRequirement("arm64")) build("dist/cni-arm64", "--target=bun-linux-arm64");
  if (filters.length === 0 && flags.length === 0 && !onlyServed && !onlyArm64) CHECKS.forEach(countStep);
  if (wanted.length === 0) {
    console.log(`No test file matches ${filters.join(" ")}`);
    all.push({ name: "no test file", outcome: "failed" });
  }
  if (onlyServed) {
    return countInLanes(chosen.filter(isServed).map((file) => (directory) => countFile(file, directory, {})));
  }
  if (onlyArm64) return countInVm("arm64", arm64Files, scratch);
  const vmFiles = chosen.filter(isForVm);
  // One after the other: each keeps two processors busy.
  const runMachines = async (directory: string) => {
    await countInVm("current", vmFiles, directory);
    await countInVm("oldest", vmFiles.filter(isForOldest), directory);
    await countInVm("arm64", arm64Files, directory);
  };
  const sample = chosen.filter((path) => path in SERVED_SAMPLE)
    .map((file) => (directory: string) => countFile(file, directory, SERVED_SAMPLE[file]!));
  await countFiles(chosen.filter((path) => !isForVmOnly(path)), [runMachines, ...sample]);
}

/** What there is to do, in a directory of its own. */
type Job = (directory: string) => Promise<void>;

async function countInLanes(jobs: readonly Job[]): Promise<void> {
  const directories = Array.from({ length: LANE_COUNT }, (_, lane) => mkdtempSync(join(scratch, `${lane}-`)));
  await runInLanes(LANE_COUNT, jobs.map((job) => (lane) => job(directories[lane]!)));
}

/** Runs files on the machine that this process is on. @param jobs what else there is to do */
async function countFiles(files: readonly string[], jobs: readonly Job[] = []): Promise<void> {
  const beside = files.filter((file) => !EXCLUSIVE_FILES.includes(file));
  await countInLanes([...jobs, ...beside.map((file): Job => (directory) => countFile(file, directory))]);
  for (const file of files) if (EXCLUSIVE_FILES.includes(file)) await countFile(file, scratch);
}

/** How many files are named at the end, with their share of the time. */
const SLOWEST = 10;

function slowestLine(): string {
  const slowest = [...seconds].sort(([, a], [, b]) => b - a).slice(0, SLOWEST);
  return `Slowest: ${slowest.map(([name, time]) => `${name} ${time.toFixed(0)} s`).join(", ")}`;
}

await (inVm ? countFiles(filters) : runAll());
// In the virtual machine they have been printed.
const skipped = inVm ? [] : all.filter(({ outcome }) => outcome === "skipped").map(caseLine);
for (const line of [...inVm ? [] : failures, ...skipped]) console.log(line);
if (!inVm && seconds.size > SLOWEST) console.log(slowestLine());
const hasRun = all.some(({ outcome }) => outcome !== "skipped");
if (!hasRun) {
  console.log("No test ran");
  all.push({ name: "no test ran", outcome: "failed" });
}
console.log(formatSums(all));
process.exitCode = all.some(({ outcome }) => outcome === "failed") ? 1 : 0;
