/** The body of `scripts/detach`, see its usage. @module */
import fc from "fast-check";
import { countFailed, runCampaign, type TrialReport } from "../harness/campaign.ts";
import { prepareNode } from "../harness/node.ts";
import { parseScriptOptions, seedOf } from "../harness/options.ts";
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

const options = parseScriptOptions(USAGE);
const runs = options.count("runs", 1000);
const jobs = Math.min(options.count("jobs", 4), runs);
const seed = seedOf(options);

function* work(part: string): Generator<TrialReport> {
  rememberHostNetns();
  prepareNode();
  hookSyscalls();
  const drivers = { library: libraryDriver(), run: processDriver("run"), exec: processDriver("exec") };
  // Most in this process: it is quick there, and events can happen between any two system calls.
  const driverName = fc.constantFrom(...["library", "library", "library", "library", "run", "exec"] as const);
  const property = fc.property(driverName, sequence, (name, steps) => runSequence(steps, drivers[name]));
  const job = Number(part);
  const { failed, counterexample, errorInstance } = fc.check(property, {
    numRuns: Math.ceil((runs - job) / jobs),
    seed: seed + job,
  });
  if (!failed) return yield { name: `job ${part}` };
  const [driver, { kind, first, rest, netns }] = counterexample!;
  const steps = [...[first, ...rest].map((step) => JSON.stringify(step)), `in the end DEL with namespace: ${netns}`];
  yield { name: `by ${driver} on ${kind}`, problem: [...steps, `${errorInstance}`].join("\n  ") };
}

await runCampaign({
  options,
  parts: Array.from({ length: jobs }, (_, job) => `${job}`),
  lanes: jobs,
  seed,
  work,
  summary: (reports) =>
    countFailed(reports) === 0
      ? `${runs} sequences: every DEL succeeded, nothing was left, and a fresh ADD worked`
      : `${countFailed(reports)} of ${jobs} jobs failed with seed ${seed}`,
});
