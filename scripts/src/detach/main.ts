/**
 * The body of `scripts/detach`: makes up what can happen to attached containers, and checks that they can be detached all the same. Each
 * job has a process and a node of its own.
 *
 * @module
 */
import fc from "fast-check";
import { CNI_BINARY, prepareNode, startOnNewNode } from "../harness/node.ts";
import { parseScriptOptions } from "../harness/options.ts";
import { type Driver, execDriver, libraryDriver, runDriver } from "./drivers.ts";
import { rememberHostNetns } from "./events.ts";
import { runSequence } from "./run_sequence.ts";
import { formatSequence, type Sequence, sequence } from "./steps.ts";
import { hookSyscalls } from "./syscall_hook.ts";

const USAGE =
  `usage: scripts/detach [--runs N] [--seed N] [--jobs N] [--driver library|run|exec] [--verbose] [--cni FILE]
  --runs N    sequences of commands and events with three containers; default: 1000
  --seed N    what they are made of; default: another one each time
  --jobs N    so many at a time, which mostly wait for the kernel; default: 4
  --driver D  plugins are called by the runtime in this process, by \`cni run\`, or one by one; default: by turns
  --verbose   print why ADDs failed, which they may
  --cni FILE  the program; default: dist/cni`;

// The process of a job is started with its number.
const { values } = parseScriptOptions(USAGE, ["runs", "seed", "jobs", "driver", "cni", "job"], ["verbose"]);
const cni = values.cni ?? CNI_BINARY;
const runs = Number(values.runs ?? 1000);
const jobs = Math.min(Number(values.jobs ?? 4), runs);
const seed = Number(values.seed ?? crypto.getRandomValues(new Uint32Array(1))[0]! >>> 1);

const DRIVERS = { library: libraryDriver, run: () => runDriver(cni), exec: () => execDriver(cni) };
type DriverName = keyof typeof DRIVERS;

/** Most of them in this process: it is quick there, and events can happen between any two system calls. */
const driverName = values.driver
  ? fc.constant(values.driver as DriverName)
  : fc.constantFrom<DriverName>("library", "library", "library", "library", "run", "exec");

/** One of the jobs. */
function work(job: number): void {
  rememberHostNetns();
  prepareNode(cni);
  hookSyscalls();
  const drivers = Object.fromEntries(Object.entries(DRIVERS).map(([name, make]) => [name, make()]));
  const refusals = new Map<string, number>();
  const property = fc.property(driverName, sequence, (name, steps) => {
    runSequence(steps, drivers[name]!, ({ error = "" }) => {
      const kind = error.replaceAll(/[0-9a-f]{4,}|\d+/g, "…").slice(0, 160);
      refusals.set(kind, (refusals.get(kind) ?? 0) + 1);
    });
  });
  const details = fc.check(property, { numRuns: Math.ceil((runs - job) / jobs), seed: seed + job });
  if (values.verbose) { for (const [error, count] of refusals) console.log(`${count} × ADD failed: ${error}`); }
  if (details.failed) report(details, drivers);
}

function report(
  { counterexample, errorInstance }: fc.RunDetails<[DriverName, Sequence]>,
  drivers: Readonly<Record<string, Driver>>,
): void {
  const [name, steps] = counterexample!;
  const problem = errorInstance instanceof Error ? errorInstance.message : errorInstance;
  console.log(`FAILED by ${drivers[name]!.name}: ${formatSequence(steps)}\n  ${problem}`);
  if (values.verbose && errorInstance instanceof Error) console.log(errorInstance.stack);
  process.exitCode = 1;
}

/** All of them at once. */
async function startAll(): Promise<void> {
  // The last of two options counts: all jobs have the same seed.
  const options = [...process.argv.slice(2), "--seed", `${seed}`];
  const children = Array.from({ length: jobs }, (_, job) => startOnNewNode("inherit", ...options, "--job", `${job}`));
  const failed = (await Promise.all(children.map(({ exited }) => exited))).filter((status) => status !== 0).length;
  console.log(
    failed === 0
      ? `${runs} sequences with seed ${seed}: every DEL succeeded, nothing was left, and a fresh ADD worked`
      : `${failed} of ${jobs} jobs failed with seed ${seed}`,
  );
  process.exitCode = failed === 0 ? 0 : 1;
}

if (values.job) work(Number(values.job));
else await startAll();
