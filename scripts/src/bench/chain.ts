/** The whole chain: by one process, plugin by plugin, by the reference, and the floor under it. @module */
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import { type Floor, recordedOrReason, recordFloor } from "./floor.ts";
import { interleave, type Samples } from "./measure.ts";
import {
  addAndDel,
  type BenchContainer,
  type BenchNetwork,
  chainNetwork,
  type Contender,
  execContender,
  runCall,
  runContender,
} from "./network.ts";
import { type BenchWorkspace, REFERENCE_DIRECTORY } from "./workspace.ts";
import { runSuccessfully } from "./process.ts";
import { type BenchRow, missingRow, ratioRow, speedupRow, summarize } from "./table.ts";

/** Containers for one side, alive until the row is done: taking one down takes the kernel a while and would disturb what comes next. */
export function createContainers(scope: DisposableStack, prefix: string): (number: number) => BenchContainer {
  return (number) => ({ netns: scope.use(createNetns()), id: `${prefix}${number}`, number });
}

/** A host with one container on it, so that the bridge and the rules that all containers share stand. */
export function hostWithContainer(
  scope: DisposableStack,
  side: (host: Netns) => Contender,
): { host: Netns; side: Contender } {
  const host = scope.use(createNetns());
  const contender = side(host);
  contender.add({ netns: scope.use(createNetns()), id: "resident", number: 0 });
  return { host, side: contender };
}

export function chainRows(bench: BenchWorkspace): readonly BenchRow[] {
  using scope = new DisposableStack();
  const ours = chainNetwork(bench, "chain0");
  const run = hostWithContainer(scope, (host) => runContender(host, bench, ours));
  const exec = hostWithContainer(scope, (host) => execContender(host, bench.plugins, chainNetwork(bench, "chain1")));
  const reference = hostWithContainer(
    scope,
    (host) => execContender(host, REFERENCE_DIRECTORY, chainNetwork(bench, "chain2")),
  );
  const floor = recordedOrReason(() => recordChain(scope, bench));
  const make = createContainers(scope, "c");
  const samples = interleave(bench.rounds, {
    run: (round) => addAndDel(run.side, make(round + 1)),
    exec: (round) => addAndDel(exec.side, make(round + 1)),
    reference: (round) => addAndDel(reference.side, make(round + 1)),
    ...typeof floor === "string" ? {} : { floor: floor.measure },
    empty: () => runSuccessfully({ argv: [bench.empty] }).ms,
    runUdp: (round) => addAndDel(run.side, { ...make(round + 1), udp: true }),
    referenceUdp: (round) => addAndDel(reference.side, { ...make(round + 1), udp: true }),
  });
  const against = (way: string, who: string, verb: string, atLeast: number) =>
    speedupRow({
      what: `Whole chain ${who}: ${verb.toUpperCase()}`,
      ours: summarize("cni", samples[`${way}.${verb}`]),
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

/** Traces ADD and DEL of one container on a host of their own, where they are made again for others. */
function recordChain(scope: DisposableStack, bench: BenchWorkspace): RecordedChain {
  const network: BenchNetwork = chainNetwork(bench, "chain3");
  const { host } = hostWithContainer(scope, (host) => runContender(host, bench, network));
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
  network: BenchNetwork,
  number: number,
): RecordedChain {
  const sample: BenchContainer = { netns: scope.use(createNetns()), id: "sample", number };
  const record = (verb: string) =>
    recordFloor(bench.state, `${network.name}-${verb}`, host, sample.netns, runCall(bench, network, verb, sample));
  const [add, del] = [record("add"), record("del")];
  const measure = () => {
    const container = scope.use(createNetns());
    return { add: add.run(host, container), del: del.run(host, container) };
  };
  return { add, del, measure };
}
