/** Many containers that start at the same moment, as after a reboot. @module */
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import { median, percentile, settle } from "./measure.ts";
import { type Container, type Network, pluginCall, runCall, wholeChain } from "./network.ts";
import { type Bench, REFERENCE } from "./workspace.ts";
import { type Command, type Ended, type Running, start, waitForAny } from "./process.ts";
import { faster, figure, type Row, times } from "./table.ts";

/** One storm. */
interface Storm {
  readonly total: number;
  /** Of each container, from the storm's beginning to its end. */
  readonly each: readonly number[];
  readonly failures: readonly string[];
}

/** What a container needs next, given what its last program answered; `undefined` if it is attached. */
type Next = (container: Container, step: number, answer: string) => Command | undefined;

export function atOnceRows(bench: Bench): readonly Row[] {
  const count = bench.quick ? 20 : 100;
  const rounds = bench.quick ? 1 : 3;
  // One storm of the reference takes as long as ten of ours.
  const withReference = rounds >> 1;
  const ours: Storm[] = [];
  const exec: Storm[] = [];
  const reference: Storm[] = [];
  for (let round = 0; round < rounds; round++) {
    const network = (name: string) => wholeChain(bench, `${name}${round}`);
    ours.push(storm(count, byRun(bench, network("at0n"))));
    exec.push(storm(count, byExec(bench.plugins, network("at1n"))));
    if (round === withReference) reference.push(storm(count, byExec(REFERENCE, network("at2n"))));
  }
  const total = (storms: readonly Storm[]) => storms.map(({ total }) => total);
  const failed = (storms: readonly Storm[]) => storms.flatMap(({ failures }) => failures);
  const outcome = (who: string, storms: readonly Storm[]) =>
    `${failed(storms).length} of ${storms.length * count} by ${who}${failed(storms)[0] ?? ""}`;
  const note = `ADDs that failed: ${outcome("cni run", ours)}, ${outcome("plugins of cni", exec)}, ${
    outcome("the reference", reference)
  }`;
  const what = `${count} ADDs at once`;
  return [
    faster({
      what: `${what} by \`cni run\`, until the last has ended`,
      ours: figure("cni", total(ours)),
      other: figure("reference", total(reference)),
      goal: { atLeast: 8 },
      note,
    }),
    faster({
      what: `${what} plugin by plugin`,
      ours: figure("cni", total(exec)),
      other: figure("reference", total(reference)),
      note,
    }),
    times({
      what: `${what}: 99th percentile against the median`,
      ours: figure("cni, p99", ours.map(({ each }) => percentile(each, 0.99))),
      other: figure("cni, p50", ours.map(({ each }) => median(each))),
      goal: { atMost: 3 },
    }),
  ];
}

function byRun(bench: Bench, network: Network): Next {
  return (container, step) => step === 0 ? runCall(bench, network, "add", container) : undefined;
}

function byExec(directory: string, network: Network): Next {
  return (container, step, answer) => {
    const plugin = network.plugins[step];
    const result = step === 0 ? undefined : JSON.parse(answer);
    return plugin && pluginCall(directory, network, plugin.type, "ADD", container, result);
  };
}

/** Starts everything at once on a host of its own, and each container's next program when the one before has ended. */
function storm(count: number, next: Next): Storm {
  const scope = new DisposableStack();
  const host: Netns = scope.use(createNetns());
  const all = Array.from(
    { length: count },
    (_, number) => ({ netns: scope.use(createNetns()), id: `c${number}`, number }),
  );
  const running = new Map<number, Running>();
  const places = new Map<number, { readonly container: Container; readonly step: number }>();
  const failures: string[] = [];
  const each: number[] = [];
  const began = performance.now();
  const proceed = (container: Container, step: number, answer: string) => {
    const command = next(container, step, answer);
    if (!command) return void each.push(performance.now() - began);
    const started = start(command);
    running.set(started.pid, started);
    places.set(started.pid, { container, step });
  };
  host.run(() => {
    for (const container of all) proceed(container, 0, "");
    while (running.size > 0) {
      const { which, ended } = waitForAny(running);
      const { container, step } = places.get(which.pid)!;
      if (ended.exitCode === 0) proceed(container, step + 1, ended.stdout);
      else failures.push(whatItSaid(ended));
    }
  });
  const total = performance.now() - began;
  scope.dispose();
  settle();
  return { total, each, failures };
}

const whatItSaid = ({ exitCode, stdout, stderr }: Ended): string => ` (${exitCode}: ${stdout.trim()}${stderr.trim()})`;
