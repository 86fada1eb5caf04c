/** The whole chain: by one process, plugin by plugin, by the reference, and the floor under it. @module */
import { type Floor, recordedOrReason, recordFloor } from "./floor.ts";
import { interleave, type Samples } from "./measure.ts";
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import { firstProgram, type Invocation } from "../harness/invocation.ts";
import type { Network } from "../harness/networks.ts";
import { runSuccessfully } from "../harness/process.ts";
import {
  addAndDel,
  type BenchContainer,
  chainNetwork,
  type Contender,
  newBenchContainer,
  newContender,
} from "./network.ts";
import type { BenchWorkspace } from "./workspace.ts";
import { type BenchRow, missingRow, ratioRow, speedupRow, summarize } from "./table.ts";

/** Containers for one side. They live until the row is done: while the kernel removes one, it disturbs what is measured. */
export function createContainers(
  scope: DisposableStack,
  prefix: string,
): (number: number, isUdp?: boolean) => BenchContainer {
  return (number, isUdp) => newBenchContainer(scope, `${prefix}${number}`, number, isUdp);
}

/** A host with one container on it, so that the bridge and the rules that all containers share exist. */
export function hostWithContainer(
  scope: DisposableStack,
  invocation: Invocation,
  network: Network,
): { host: Netns; side: Contender } {
  const host = scope.use(createNetns());
  const side = newContender(host, invocation, network);
  side.add(newBenchContainer(scope, "resident", 0));
  return { host, side };
}

export function chainRows(bench: BenchWorkspace): readonly BenchRow[] {
  using scope = new DisposableStack();
  const [run, exec, reference] = [bench.run, bench.exec, bench.reference].map((invocation, number) =>
    hostWithContainer(scope, invocation, chainNetwork(bench, `chain${number}`)).side
  );
  const floor = recordedOrReason(() => recordChain(scope, bench));
  const newContainer = createContainers(scope, "c");
  const samples = interleave(bench.rounds, {
    run: (round) => addAndDel(run, newContainer(round + 1)),
    exec: (round) => addAndDel(exec, newContainer(round + 1)),
    reference: (round) => addAndDel(reference, newContainer(round + 1)),
    ...typeof floor === "string" ? {} : { floor: floor.measure },
    empty: () => runSuccessfully({ argv: [bench.empty] }).ms,
    runUdp: (round) => addAndDel(run, newContainer(round + 1, true)),
    referenceUdp: (round) => addAndDel(reference, newContainer(round + 1, true)),
  });
  const against = (side: string, how: string, verb: string, atLeast: number) =>
    speedupRow({
      what: `Whole chain ${how}: ${verb.toUpperCase()}`,
      ours: summarize("cni", samples[`${side}.${verb}`]),
      other: summarize("reference", samples[`reference.${verb}`]),
      goal: { atLeast },
    });
  return [
    against("run", "by `cni run`", "add", 10),
    against("run", "by `cni run`", "del", 10),
    against("exec", "plugin by plugin", "add", 5),
    against("exec", "plugin by plugin", "del", 5),
    ...typeof floor === "string" ? [missingRow("Whole chain against the floor", floor)] : floorRows(samples, floor),
    ...["add", "del"].map((verb) =>
      speedupRow({
        what: `Whole chain by \`cni run\`, one of the ports UDP: ${verb.toUpperCase()}`,
        ours: summarize("cni", samples[`runUdp.${verb}`]),
        other: summarize("reference", samples[`referenceUdp.${verb}`]),
      })
    ),
  ];
}

function floorRows(samples: Samples, { add, del }: { add: Floor; del: Floor }): readonly BenchRow[] {
  const start = summarize("", samples.empty).median;
  const withStart = samples["floor.add"].map((value) => value + start);
  const empty = `an empty compiled program takes ${start.toFixed(1)} ms`;
  return [
    ratioRow({
      what: "Whole chain by `cni run`: ADD against the floor",
      ours: summarize("cni", samples["run.add"]),
      other: summarize("C + empty program", withStart),
      goal: { atMost: 2 },
      note: `${add.requests}; ${empty}`,
    }),
    ratioRow({
      what: "Whole chain by `cni run`: DEL against the floor",
      ours: summarize("cni", samples["run.del"]),
      other: summarize("C", samples["floor.del"]),
      goal: { atMost: 1.5 },
      note: `${del.requests}; ${empty}, which is not in the floor here`,
    }),
  ];
}

/** Traces ADD and DEL of one container on a host of their own, where they are replayed for others. */
function recordChain(scope: DisposableStack, bench: BenchWorkspace): RecordedChain {
  const network = chainNetwork(bench, "chain3");
  const { host } = hostWithContainer(scope, bench.run, network);
  return recordChainOn(scope, bench, host, network, 1);
}

/** The floor of ADD and DEL on one host. */
export interface RecordedChain {
  readonly add: Floor;
  readonly del: Floor;
  /** Both for a new container, in milliseconds. */
  measure(): { readonly add: number; readonly del: number };
}

/** Traces ADD and DEL of the container of this number on a host that has others. */
export function recordChainOn(
  scope: DisposableStack,
  bench: BenchWorkspace,
  host: Netns,
  network: Network,
  number: number,
): RecordedChain {
  const sample = newBenchContainer(scope, "sample", number);
  const record = (verb: "add" | "del") => {
    const command = firstProgram(bench.run.command(network, verb, { container: sample }));
    return recordFloor(bench.state, `${network.name}-${verb}`, host, sample.namespace, command);
  };
  const [add, del] = [record("add"), record("del")];
  const measure = () => {
    const container = scope.use(createNetns());
    return { add: add.run(host, container), del: del.run(host, container) };
  };
  return { add, del, measure };
}
