/** Many containers that start at the same moment, as after a reboot. @module */
import { createNetns } from "../../../ffi/netns.ts";
import type { Invocation, ProgramSequence } from "../harness/invocation.ts";
import type { Network } from "../harness/networks.ts";
import {
  type ProcessCommand,
  type ProcessResult,
  type RunningProcess,
  startProcess,
  waitForAny,
} from "../harness/process.ts";
import { median, percentile } from "../harness/statistics.ts";
import { awaitNamespaceCleanup } from "./measure.ts";
import { chainNetwork, newBenchContainer } from "./network.ts";
import { type BenchRow, ratioRow, speedupRow, summarize } from "./table.ts";
import type { BenchWorkspace } from "./workspace.ts";

/** ADDs of many containers at once. */
interface ConcurrentRun {
  readonly total: number;
  /** Of each container, from the beginning of all to its end. */
  readonly perContainer: readonly number[];
  readonly failures: readonly string[];
}

export function concurrentAddRows(bench: BenchWorkspace): readonly BenchRow[] {
  const count = bench.quick ? 20 : 100;
  const rounds = bench.quick ? 1 : 3;
  // One round of the reference takes as long as ten of ours.
  const withReference = rounds >> 1;
  const ours: ConcurrentRun[] = [];
  const exec: ConcurrentRun[] = [];
  const reference: ConcurrentRun[] = [];
  for (let round = 0; round < rounds; round++) {
    const network = (name: string) => chainNetwork(bench, `${name}${round}`);
    ours.push(runConcurrently(count, bench.run, network("at0n")));
    exec.push(runConcurrently(count, bench.exec, network("at1n")));
    if (round === withReference) reference.push(runConcurrently(count, bench.reference, network("at2n")));
  }
  const total = (runs: readonly ConcurrentRun[]) => runs.map(({ total }) => total);
  const failed = (runs: readonly ConcurrentRun[]) => runs.flatMap(({ failures }) => failures);
  const outcome = (name: string, runs: readonly ConcurrentRun[]) =>
    `${failed(runs).length} of ${runs.length * count} by ${name}${failed(runs)[0] ?? ""}`;
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
      ours: summarize("cni, p99", ours.map(({ perContainer }) => percentile(perContainer, 0.99))),
      other: summarize("cni, p50", ours.map(({ perContainer }) => median(perContainer))),
      goal: { atMost: 3 },
    }),
  ];
}

/** Starts all ADDs at once on a host of their own, and each container's next program when the one before has ended. */
function runConcurrently(count: number, invocation: Invocation, network: Network): ConcurrentRun {
  const scope = new DisposableStack();
  const host = scope.use(createNetns());
  const containers = Array.from({ length: count }, (_, number) => newBenchContainer(scope, `c${number}`, number));
  const running = new Map<number, RunningProcess>();
  const sequences = new Map<number, ProgramSequence>();
  const failures: string[] = [];
  const perContainer: number[] = [];
  const startTime = performance.now();
  const proceed = (sequence: ProgramSequence, step: IteratorResult<ProcessCommand, ProcessResult>) => {
    if (!step.done) {
      const started = startProcess(step.value);
      running.set(started.pid, started);
      sequences.set(started.pid, sequence);
    } else if (step.value.exitCode === 0) perContainer.push(performance.now() - startTime);
    else failures.push(outputOf(step.value));
  };
  host.run(() => {
    for (const container of containers) {
      const sequence = invocation.command(network, "add", { container });
      proceed(sequence, sequence.next());
    }
    while (running.size > 0) {
      const { which, ended } = waitForAny(running);
      const sequence = sequences.get(which.pid)!;
      proceed(sequence, sequence.next(ended));
    }
  });
  const total = performance.now() - startTime;
  scope.dispose();
  awaitNamespaceCleanup();
  return { total, perContainer, failures };
}

const outputOf = ({ exitCode, signal, stdout, stderr }: ProcessResult): string =>
  ` (${exitCode ?? signal}: ${stdout.trim()}${stderr.trim()})`;
