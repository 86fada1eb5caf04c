/** The body of `scripts/detach`, see its usage. Each job has a process and a node of its own. @module */
import fc from "fast-check";
import { prepareNode, startOnNewNode } from "../harness/node.ts";
import { parseScriptOptions } from "../harness/options.ts";
import { seedOf } from "../harness/random.ts";
import { libraryDriver, processDriver } from "./drivers.ts";
import { rememberHostNetns } from "./events.ts";
import { runSequence } from "./run_sequence.ts";
import { sequence } from "./sequence.ts";
import { hookSyscalls } from "./syscall_hook.ts";

const USAGE = `usage: scripts/detach [--runs N] [--seed N] [--jobs N]
  --runs N    sequences of commands and events with three containers; default: 1000
  --seed N    what they are made of; default: another one each time
  --jobs N    so many at a time, which mostly wait for the kernel; default: 4
CNI_BINARY names another program than dist/cni.`;

// The process of a job is started with its number.
const { values, count } = parseScriptOptions(USAGE, "job");
const runs = count("runs", 1000);
const jobs = Math.min(count("jobs", 4), runs);
const seed = seedOf(values.seed);

function work(job: number): void {
  rememberHostNetns();
  prepareNode();
  hookSyscalls();
  const drivers = { library: libraryDriver(), run: processDriver("run"), exec: processDriver("exec") };
  // Most in this process: it is quick there, and events can happen between any two system calls.
  const driverName = fc.constantFrom(...["library", "library", "library", "library", "run", "exec"] as const);
  const property = fc.property(driverName, sequence, (name, steps) => runSequence(steps, drivers[name]));
  const { failed, counterexample, errorInstance } = fc.check(property, {
    ...{ numRuns: Math.ceil((runs - job) / jobs), seed: seed + job },
  });
  if (!failed) return;
  const [name, { kind, first, rest, netns }] = counterexample!;
  const steps = [...[first, ...rest].map((step) => JSON.stringify(step)), `in the end DEL with namespace: ${netns}`];
  console.log(`FAILED by ${name} on ${kind}: ${steps.map((step) => `\n    ${step}`).join("")}\n  ${errorInstance}`);
  process.exitCode = 1;
}

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
