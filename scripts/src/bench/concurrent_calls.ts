/** Many containers that start at the same moment, as after a reboot, and end at the same moment. @module */
import { createNetns } from "../../../ffi/netns/netns.ts";
import type { Invocation, ProgramSequence } from "../harness/invocation.ts";
import type { Network } from "../harness/networks.ts";
import { type ProcessResult, type RunningProcess, startProcess, waitForAny } from "../harness/process.ts";
import { median, percentile } from "../harness/statistics.ts";
import { awaitNamespaceCleanup } from "./measure.ts";
import { startShimServer } from "../harness/server.ts";
import { type BenchRow, row } from "./table.ts";
import { type BenchContainer, type BenchWorkspace, chainNetwork, newBenchContainer } from "./workspace.ts";

const VERBS = ["add", "del"] as const;

export function concurrentCallRows(bench: BenchWorkspace): readonly BenchRow[] {
  const count = bench.quick ? 20 : 100;
  const server = startShimServer(bench);
  const sides = { served: server.run, servedExec: server.exec, run: bench.run, exec: bench.exec };
  const runs: Record<string, ReturnType<typeof runConcurrently>[]> = {};
  const measure = (name: string, invocation: Invocation, round: number) =>
    (runs[name] ??= []).push(runConcurrently(count, invocation, chainNetwork(bench, `${name}n${round}`)));
  for (let round = 0; round < (bench.quick ? 1 : 3); round++) {
    for (const [name, invocation] of Object.entries(sides)) measure(name, invocation, round);
    measure("reference", bench.reference, round);
  }
  const network = chainNetwork(bench, "any");
  const calls = [server.run, server.exec].flatMap((side) => VERBS.flatMap((verb) => side.programs(network, verb)));
  const note = `the server took ${server.status().served} of ${calls.length * count * runs["served"]!.length} calls`;
  return VERBS.flatMap((verb) => {
    const what = `${count} ${verb.toUpperCase()}s at once`;
    const totals = (name: string) => runs[name]!.map((run) => run[verb].total);
    const failures = Object.entries(runs).map(([name, all]) => {
      const failed = all.flatMap((run) => run[verb].failures);
      return `${failed.length} of ${all.length * count} (${name})${failed[0] ?? ""}`;
    });
    const against = ["reference", totals("reference")] as const;
    const goal = { atLeast: verb === "add" ? 20 : 12, note };
    const cold = { note: `failed: ${failures.join(", ")}`, ...verb === "add" ? { atLeast: 8 } : {} };
    const late = runs["run"]!.map((run) => percentile(run[verb].perContainer, 0.99));
    const middle = runs["run"]!.map((run) => median(run[verb].perContainer));
    return [
      row(`${what} by \`cni run\`, until the last has ended`, "faster", totals("run"), against, cold),
      row(`${what} plugin by plugin`, "faster", totals("exec"), against),
      row(`${what} by \`cni run\`, served`, "faster", totals("served"), against, goal),
      row(`${what} plugin by plugin, served`, "faster", totals("servedExec"), against, {
        atLeast: verb === "add" ? 15 : 12,
      }),
      row(`${what}: 99th percentile against the median`, "times", late, ["cni, p50", middle], { atMost: 3 }),
    ];
  });
}

/** Attaches all containers of a host of their own, and detaches them. */
function runConcurrently(count: number, invocation: Invocation, network: Network) {
  using scope = new DisposableStack();
  const host = scope.use(createNetns());
  const containers = Array.from(
    { length: count },
    (_, number) => newBenchContainer({ scope }, `c${number}`, number),
  );
  const results = new Map<BenchContainer, unknown>();
  const [add, del] = VERBS.map((verb) =>
    host.run(() =>
      runTogether(
        containers,
        (container) => invocation.command(network, verb, { container, result: results.get(container) }),
        (container, { stdout }) => {
          if (verb === "add") results.set(container, JSON.parse(stdout));
        },
      )
    )
  );
  scope.dispose();
  awaitNamespaceCleanup();
  return { add: add!, del: del! };
}

/** Starts all commands at once, and each command's next program when the one before has ended. */
function runTogether<T>(
  items: readonly T[],
  command: (item: T) => ProgramSequence,
  finish: (item: T, ended: ProcessResult) => void,
) {
  const running = new Map<number, RunningProcess>();
  const waiting = new Map<number, (ended: ProcessResult) => void>();
  const failures: string[] = [];
  const perContainer: number[] = [];
  const startTime = performance.now();
  for (const item of items) {
    const sequence = command(item);
    const proceed = (step: ReturnType<ProgramSequence["next"]>) => {
      if (!step.done) {
        const started = startProcess(step.value);
        running.set(started.pid, started);
        waiting.set(started.pid, (ended) => proceed(sequence.next(ended)));
        return;
      }
      const { exitCode, signal, stdout, stderr } = step.value;
      if (exitCode !== 0) return failures.push(` (${exitCode ?? signal}: ${stdout.trim()}${stderr.trim()})`);
      perContainer.push(performance.now() - startTime);
      finish(item, step.value);
    };
    proceed(sequence.next());
  }
  while (running.size > 0) {
    const { which, ended } = waitForAny(running);
    waiting.get(which.pid)!(ended);
  }
  return { total: performance.now() - startTime, perContainer, failures };
}
