/** Runs a test file in a process of its own, so that a crash, a hang or a moved namespace costs one file and is counted. @module */
import { closeSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ServerStatus } from "../../../server/status.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { readCases, type TestCase } from "./junit.ts";
import { areServed } from "./served_files.ts";

/** A single test; kernel tests wait for events and programs, never this long. Emulated, all takes up to twenty times as long. */
const TEST_TIMEOUT_MS = 60_000;
const VM_TEST_TIMEOUT_MS = 900_000;
/** What a test may wait for in one place. */
const VM_PATIENCE_MS = 600_000;
/** A whole file: a blocking system call cannot be interrupted from inside the process. */
const FILE_TIMEOUT_MS = 600_000;
const LONG_FILE_TIMEOUT_MS = 3_600_000;
/** Some tests go on for as long as these say: before a release, for more than ten minutes. */
const LONG_TEST_VARIABLES = ["CNI_FIRST_PACKETS", "CNI_KILLS_S", "CNI_RANDOM_CLUSTERS"];

export interface FileRun {
  /** More options for `bun test`. */
  readonly flags?: readonly string[];
  readonly inVm?: boolean;
  /** Variables of a run with a server. */
  readonly serverEnv?: Readonly<Record<string, string>>;
}

/** @param scratch a directory that no other run uses at the same time */
export async function runFile(file: string, scratch: string, { flags = [], inVm = false, serverEnv }: FileRun = {}) {
  const report = join(scratch, "report.xml");
  rmSync(report, { force: true });
  const timeout = `--timeout=${inVm ? VM_TEST_TIMEOUT_MS : TEST_TIMEOUT_MS}`;
  const reporter = ["--reporter=junit", `--reporter-outfile=${report}`, timeout];
  const reports = join(scratch, "servers");
  rmSync(reports, { recursive: true, force: true });
  mkdirSync(reports);
  const server = serverEnv ? [process.execPath, "scripts/src/test/with_server.ts", reports] : [];
  const command = [...server, process.execPath, "test", `./${file}`, ...reporter, ...flags];
  const isLong = inVm || LONG_TEST_VARIABLES.some((name) => process.env[name] !== undefined);
  const limit = isLong ? LONG_FILE_TIMEOUT_MS : FILE_TIMEOUT_MS;
  const env = { ...serverEnv, ...inVm && { TEST_PATIENCE_MS: `${VM_PATIENCE_MS}` } };
  const { ending, output } = await spawnGroup(command, join(scratch, "log"), tmpdir(), limit, env);
  const cases = [...readCases(report), ...serverEnv ? [servedCase(file, reports)] : []];
  // A file that runs nothing is a mistake, unless -t chose among the tests.
  return { cases, ending: ending || (cases.length === 0 && flags.length === 0 ? "ran no test" : ""), output };
}

/** That calls were served, as a test of its own. */
function servedCase(file: string, reports: string): TestCase {
  const statuses = readdirSync(reports).map((name) =>
    JSON.parse(readFileSync(join(reports, name), "utf8")) as ServerStatus
  );
  const sum = (count: (status: ServerStatus) => number) => statuses.reduce((all, status) => all + count(status), 0);
  const calls = { served: sum(({ served }) => served), refused: sum(({ fellBack }) => fellBack.notAllowed) };
  const name = `${calls.served} calls were served, ${calls.refused} refused`;
  return { name, outcome: areServed(file, calls) ? "passed" : "failed" };
}

export function casesOf(file: string, cases: readonly TestCase[], ending: string): readonly TestCase[] {
  const isNamed = ending === "" || cases.some(({ outcome }) => outcome === "failed");
  const all = isNamed ? cases : [...cases, { name: ending, outcome: "failed" as const }];
  return all.map(({ name, outcome }) => ({ name: `${file}: ${name}`, outcome }));
}

/** Leaders of the process groups that run. */
const groups = new Set<number>();
const SIGNALS = ["SIGHUP", "SIGINT", "SIGTERM"] as const;

function killGroup(leader: number): void {
  try {
    process.kill(-leader, "SIGKILL");
  } catch {
    // The group is gone already.
  }
}

function endWithGroups(_: string, signal: number): never {
  groups.forEach(killGroup);
  process.exit(128 + signal);
}

/** Starts a program in its own process group and waits; what the group left running is killed. `ending` says how it failed, or is empty. */
export async function spawnGroup(
  command: readonly string[],
  log: string,
  directory: string,
  timeoutMs: number,
  env: Readonly<Record<string, string>> = {},
) {
  const fd = openSync(log, "w");
  if (groups.size === 0) { for (const signal of SIGNALS) process.on(signal, endWithGroups); }
  const child = Bun.spawn([...command], {
    cwd: REPOSITORY_ROOT,
    env: { ...process.env, NO_COLOR: "1", TMPDIR: directory, ...env },
    stdio: ["ignore", fd, fd],
    detached: true,
  });
  groups.add(child.pid);
  let late = "";
  const timer = setTimeout(() => {
    late = `took longer than ${timeoutMs / 1000} s`;
    killGroup(child.pid);
  }, timeoutMs);
  await child.exited;
  clearTimeout(timer);
  killGroup(child.pid);
  groups.delete(child.pid);
  if (groups.size === 0) { for (const signal of SIGNALS) process.off(signal, endWithGroups); }
  closeSync(fd);
  const status = child.exitCode === 0 ? "" : `status ${child.exitCode}`;
  const ending = late || (child.signalCode ? `killed by ${child.signalCode}` : status);
  return { ending, output: readFileSync(log, "utf8").trim() };
}
