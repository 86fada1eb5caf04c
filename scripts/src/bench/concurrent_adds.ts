/** Many containers that start at the same moment, as after a reboot. @module */
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import { awaitNamespaceCleanup, median, percentile } from "./measure.ts";
import { type BenchContainer, type BenchNetwork, chainNetwork, pluginCall, runCall } from "./network.ts";
import { type BenchWorkspace, REFERENCE_DIRECTORY } from "./workspace.ts";
import { type ProcessCommand, type ProcessResult, type RunningProcess, startProcess, waitForAny } from "./process.ts";
import { type BenchRow, ratioRow, speedupRow, summarize } from "./table.ts";

/** One storm. */
interface ConcurrentRun {
  readonly total: number;
  /** Of each container, from the storm's beginning to its end. */
  readonly perCall: readonly number[];
  readonly failures: readonly string[];
}

/** What a container needs next, given what its last program answered; `undefined` if it is attached. */
type Next = (container: BenchContainer, step: number, answer: string) => ProcessCommand | undefined;

export function concurrentAddRows(bench: BenchWorkspace): readonly BenchRow[] {
  const count = bench.quick ? 20 : 100;
  const rounds = bench.quick ? 1 : 3;
  // One storm of the reference takes as long as ten of ours.
  const withReference = rounds >> 1;
  const ours: ConcurrentRun[] = [];
  const exec: ConcurrentRun[] = [];
  const reference: ConcurrentRun[] = [];
  for (let round = 0; round < rounds; round++) {
    const network = (name: string) => chainNetwork(bench, `${name}${round}`);
    ours.push(runConcurrently(count, byRun(bench, network("at0n"))));
    exec.push(runConcurrently(count, byExec(bench.plugins, network("at1n"))));
    if (round === withReference) reference.push(runConcurrently(count, byExec(REFERENCE_DIRECTORY, network("at2n"))));
  }
  const total = (storms: readonly ConcurrentRun[]) => storms.map(({ total }) => total);
  const failed = (storms: readonly ConcurrentRun[]) => storms.flatMap(({ failures }) => failures);
  const outcome = (who: string, storms: readonly ConcurrentRun[]) =>
    `${failed(storms).length} of ${storms.length * count} by ${who}${failed(storms)[0] ?? ""}`;
  const note = `ADDs that failed: ${outcome("cni run", ours)}, ${outcome("plugins of cni", exec)}, ${
    outcome("the reference", reference)
  }`;
  const what = `${count} ADDs at once`;
  return [
    speedupRow({
      what: `${what} by \`cni run\`, until the last has ended`,
      ours: summarize("cni", total(ours)),
      other: summarize("reference", total(reference)),
      goal: { atLeast: 8 },
      note,
    }),
    speedupRow({
      what: `${what} plugin by plugin`,
      ours: summarize("cni", total(exec)),
      other: summarize("reference", total(reference)),
      note,
    }),
    ratioRow({
      what: `${what}: 99th percentile against the median`,
      ours: summarize("cni, p99", ours.map(({ perCall }) => percentile(perCall, 0.99))),
      other: summarize("cni, p50", ours.map(({ perCall }) => median(perCall))),
      goal: { atMost: 3 },
    }),
  ];
}

function byRun(bench: BenchWorkspace, network: BenchNetwork): Next {
  return (container, step) => step === 0 ? runCall(bench, network, "add", container) : undefined;
}

function byExec(directory: string, network: BenchNetwork): Next {
  return (container, step, answer) => {
    const plugin = network.plugins[step];
    const result = step === 0 ? undefined : JSON.parse(answer);
    return plugin && pluginCall(directory, network, plugin.type, "ADD", container, result);
  };
}

/** Starts everything at once on a host of its own, and each container's next program when the one before has ended. */
function runConcurrently(count: number, next: Next): ConcurrentRun {
  const scope = new DisposableStack();
  const host: Netns = scope.use(createNetns());
  const all = Array.from(
    { length: count },
    (_, number) => ({ netns: scope.use(createNetns()), id: `c${number}`, number }),
  );
  const running = new Map<number, RunningProcess>();
  const places = new Map<number, { readonly container: BenchContainer; readonly step: number }>();
  const failures: string[] = [];
  const each: number[] = [];
  const began = performance.now();
  const proceed = (container: BenchContainer, step: number, answer: string) => {
    const command = next(container, step, answer);
    if (!command) return void each.push(performance.now() - began);
    const started = startProcess(command);
    running.set(started.pid, started);
    places.set(started.pid, { container, step });
  };
  host.run(() => {
    for (const container of all) proceed(container, 0, "");
    while (running.size > 0) {
      const { which, ended } = waitForAny(running);
      const { container, step } = places.get(which.pid)!;
      if (ended.exitCode === 0) proceed(container, step + 1, ended.stdout);
      else failures.push(outputOf(ended));
    }
  });
  const total = performance.now() - began;
  scope.dispose();
  awaitNamespaceCleanup();
  return { total, perCall: each, failures };
}

const outputOf = ({ exitCode, stdout, stderr }: ProcessResult): string =>
  ` (${exitCode}: ${stdout.trim()}${stderr.trim()})`;
