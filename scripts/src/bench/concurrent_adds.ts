/** Many containers that start at the same moment, as after a reboot. @module */
import { createNetns } from "../../../ffi/netns.ts";
import type { Invocation, ProgramSequence } from "../harness/invocation.ts";
import type { Network } from "../harness/networks.ts";
import { type RunningProcess, startProcess, waitForAny } from "../harness/process.ts";
import { median, percentile } from "../harness/statistics.ts";
import { awaitNamespaceCleanup } from "./measure.ts";
import { type BenchRow, row } from "./table.ts";
import { type BenchWorkspace, chainNetwork, newBenchContainer } from "./workspace.ts";

type ConcurrentRun = ReturnType<typeof runConcurrently>;

export function concurrentAddRows(bench: BenchWorkspace): readonly BenchRow[] {
  const count = bench.quick ? 20 : 100;
  const repeat = (name: "run" | "exec" | "reference", rounds: number) =>
    Array.from({ length: rounds }, (_, i) => runConcurrently(count, bench[name], chainNetwork(bench, `${name}n${i}`)));
  const [ours, exec] = [repeat("run", bench.quick ? 1 : 3), repeat("exec", bench.quick ? 1 : 3)];
  // One round of the reference takes as long as ten of ours.
  const reference = repeat("reference", 1);
  const totals = (runs: readonly ConcurrentRun[]) => runs.map(({ total }) => total);
  const outcome = (name: string, runs: readonly ConcurrentRun[]) => {
    const failures = runs.flatMap((run) => run.failures);
    return `${failures.length} of ${runs.length * count} by ${name}${failures[0] ?? ""}`;
  };
  const outcomes = [outcome("cni run", ours), outcome("plugins of cni", exec), outcome("the reference", reference)];
  const note = `ADDs that failed: ${outcomes.join(", ")}`;
  const against = ["reference", totals(reference)] as const;
  const what = `${count} ADDs at once`;
  const late = ours.map(({ perContainer }) => percentile(perContainer, 0.99));
  const middle = ours.map(({ perContainer }) => median(perContainer));
  return [
    row(`${what} by \`cni run\`, until the last has ended`, "faster", totals(ours), against, { atLeast: 8, note }),
    row(`${what} plugin by plugin`, "faster", totals(exec), against),
    row(`${what}: 99th percentile against the median`, "times", late, ["cni, p50", middle], { atMost: 3 }),
  ];
}

/** Starts all ADDs at once on a host of their own, and each container's next program when the one before has ended. */
function runConcurrently(count: number, invocation: Invocation, network: Network) {
  const scope = new DisposableStack();
  const host = scope.use(createNetns());
  const containers = Array.from({ length: count }, (_, number) => newBenchContainer({ scope }, `c${number}`, number));
  const running = new Map<number, RunningProcess>();
  const sequences = new Map<number, ProgramSequence>();
  const failures: string[] = [];
  const perContainer: number[] = [];
  const startTime = performance.now();
  const proceed = (sequence: ProgramSequence, step: ReturnType<ProgramSequence["next"]>) => {
    if (!step.done) {
      const started = startProcess(step.value);
      running.set(started.pid, started);
      sequences.set(started.pid, sequence);
      return;
    }
    const { exitCode, signal, stdout, stderr } = step.value;
    if (exitCode === 0) perContainer.push(performance.now() - startTime);
    else failures.push(` (${exitCode ?? signal}: ${stdout.trim()}${stderr.trim()})`);
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
