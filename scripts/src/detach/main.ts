/**
 * The body of `scripts/detach`: makes up what can happen to attached containers, and looks whether they can be detached all the same. Each
 * job works in network and mount namespaces of a process of its own.
 *
 * @module
 */
import fc from "fast-check";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type Driver, execDriver, libraryDriver, runDriver } from "./drivers.ts";
import { hookSyscalls } from "./syscall_hook.ts";
import { rememberHostNetns } from "./events.ts";
import { formatSequence, type Sequence, sequence } from "./steps.ts";
import { runSequence } from "./run_sequence.ts";
import { hideMachineState, runShell } from "../harness/node.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

const USAGE = `usage: scripts/detach [--runs N] [--seed N] [--jobs N] [--way library|run|exec] [--verbose] [--cni FILE]
  --runs N    sequences of things that happen to three containers, 1000 unless told
  --seed N    what they are made of; another one each time unless told
  --jobs N    so many at a time, which mostly wait for the kernel; 4 unless told
  --way WAY   how plugins are called: by the runtime in this process, by \`cni run\`, or one by one; by turns unless told
  --verbose   tell why ADDs failed, which they may
  --cni FILE  the program; dist/cni unless told`;

const text = { type: "string" } as const;
const flag = { type: "boolean" } as const;
const { values } = parseArgs({
  options: { runs: text, seed: text, jobs: text, way: text, cni: text, job: text, verbose: flag, help: flag },
});
const cni = values.cni ?? join(REPOSITORY_ROOT, "dist/cni");
const runs = Number(values.runs ?? 1000);
const jobs = Math.min(Number(values.jobs ?? 4), runs);
const seed = Number(values.seed ?? crypto.getRandomValues(new Uint32Array(1))[0]! >>> 1);

const DRIVERS = { library: libraryDriver, run: () => runDriver(cni), exec: () => execDriver(cni) };

/** Most of them in this process: it is quick there, and things can happen between any two system calls. */
const driverOf = fc.oneof(
  { weight: 4, arbitrary: fc.constant<keyof typeof DRIVERS>("library") },
  { weight: 1, arbitrary: fc.constant<keyof typeof DRIVERS>("run") },
  { weight: 1, arbitrary: fc.constant<keyof typeof DRIVERS>("exec") },
);

/** One of the jobs. */
function work(job: number): void {
  rememberHostNetns();
  hideMachineState();
  hookSyscalls();
  runShell(`${cni} install /opt/cni/bin`);
  const callers = Object.fromEntries(Object.entries(DRIVERS).map(([name, make]) => [name, make()]));
  const refusals = new Map<string, number>();
  const ways = values.way ? fc.constant(values.way as keyof typeof DRIVERS) : driverOf;
  const property = fc.property(ways, sequence, (driver, steps) => {
    runSequence(steps, callers[driver]!, ({ error = "" }) => {
      const kind = error.replaceAll(/[0-9a-f]{4,}|\d+/g, "…").slice(0, 160);
      refusals.set(kind, (refusals.get(kind) ?? 0) + 1);
    });
  });
  const details = fc.check(property, { numRuns: Math.ceil((runs - job) / jobs), seed: seed + job });
  if (values.verbose) { for (const [why, count] of refusals) console.log(`${count} × ADD failed: ${why}`); }
  if (details.failed) report(details, callers);
}

function report(
  { counterexample, errorInstance }: fc.RunDetails<[keyof typeof DRIVERS, Sequence]>,
  callers: Readonly<Record<string, Driver>>,
): void {
  const [driver, steps] = counterexample!;
  const problem = errorInstance instanceof Error ? errorInstance.message : errorInstance;
  console.log(`FAILED by ${callers[driver]!.name}: ${formatSequence(steps)}\n  ${problem}`);
  if (values.verbose && errorInstance instanceof Error) console.log(errorInstance.stack);
  process.exitCode = 1;
}

/** All of them at once. */
async function startAll(): Promise<void> {
  const command = [process.execPath, import.meta.path, "--runs", `${runs}`, "--jobs", `${jobs}`, "--seed", `${seed}`];
  const also = ["--cni", cni, ...values.way ? ["--way", values.way] : [], ...values.verbose ? ["--verbose"] : []];
  const ended = Array.from({ length: jobs }, (_, job) => {
    const argv = ["unshare", "-mn", "--kill-child", "-f", ...command, ...also, "--job", `${job}`];
    return Bun.spawn(argv, { stdio: ["ignore", "inherit", "inherit"] }).exited;
  });
  const failed = (await Promise.all(ended)).filter((status) => status !== 0).length;
  console.log(
    failed === 0
      ? `${runs} sequences with seed ${seed}: every DEL succeeded, nothing was left, and a fresh ADD worked`
      : `${failed} of ${jobs} jobs failed with seed ${seed}`,
  );
  process.exitCode = failed === 0 ? 0 : 1;
}

if (values.help) console.log(USAGE);
else if (values.job) work(Number(values.job));
else await startAll();
