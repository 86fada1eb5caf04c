/** The whole chain: by one process, plugin by plugin, by the reference, and the floor under it. @module */
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import { type Floor, recorded, recordFloor } from "./floor.ts";
import { interleave, type Samples } from "./measure.ts";
import { addAndDel, byExec, byRun, type Container, type Network, runCall, type Side, wholeChain } from "./network.ts";
import { type Bench, REFERENCE } from "./workspace.ts";
import { must } from "./process.ts";
import { faster, figure, missing, type Row, times } from "./table.ts";

/** Containers for one side, alive until the row is done: taking one down takes the kernel a while and would disturb what comes next. */
export function containers(scope: DisposableStack, prefix: string): (number: number) => Container {
  return (number) => ({ netns: scope.use(createNetns()), id: `${prefix}${number}`, number });
}

/** A host with one container on it, so that the bridge and the rules that all containers share stand. */
export function inhabitedHost(scope: DisposableStack, side: (host: Netns) => Side): { host: Netns; side: Side } {
  const host = scope.use(createNetns());
  const made = side(host);
  made.add({ netns: scope.use(createNetns()), id: "resident", number: 0 });
  return { host, side: made };
}

export function chainRows(bench: Bench): readonly Row[] {
  using scope = new DisposableStack();
  const ours = wholeChain(bench, "chain0");
  const run = inhabitedHost(scope, (host) => byRun(host, bench, ours));
  const exec = inhabitedHost(scope, (host) => byExec(host, bench.plugins, wholeChain(bench, "chain1")));
  const reference = inhabitedHost(scope, (host) => byExec(host, REFERENCE, wholeChain(bench, "chain2")));
  const floor = recorded(() => recordChain(scope, bench));
  const make = containers(scope, "c");
  const samples = interleave(bench.rounds, {
    run: (round) => addAndDel(run.side, make(round + 1)),
    exec: (round) => addAndDel(exec.side, make(round + 1)),
    reference: (round) => addAndDel(reference.side, make(round + 1)),
    ...typeof floor === "string" ? {} : { floor: floor.measure },
    empty: () => must({ argv: [bench.empty] }).ms,
    runUdp: (round) => addAndDel(run.side, { ...make(round + 1), udp: true }),
    referenceUdp: (round) => addAndDel(reference.side, { ...make(round + 1), udp: true }),
  });
  const against = (way: string, who: string, verb: string, atLeast: number) =>
    faster({
      what: `Whole chain ${who}: ${verb.toUpperCase()}`,
      ours: figure("cni", samples[`${way}.${verb}`]),
      other: figure("reference", samples[`reference.${verb}`]),
      goal: { atLeast },
    });
  return [
    against("run", "by `cni run`", "add", 10),
    against("run", "by `cni run`", "del", 10),
    against("exec", "plugin by plugin", "add", 5),
    against("exec", "plugin by plugin", "del", 5),
    ...typeof floor === "string" ? [missing("Whole chain against the floor", floor)] : floorRows(samples, floor),
    ...["add", "del"].map((verb) =>
      faster({
        what: `Whole chain by \`cni run\`, one of the ports UDP: ${verb.toUpperCase()}`,
        ours: figure("cni", samples[`runUdp.${verb}`]),
        other: figure("reference", samples[`referenceUdp.${verb}`]),
      })
    ),
  ];
}

function floorRows(samples: Samples, { add, del }: { add: Floor; del: Floor }): readonly Row[] {
  const start = figure("", samples.empty).median;
  const withStart = samples["floor.add"].map((value) => value + start);
  const empty = `an empty compiled program takes ${start.toFixed(1)} ms`;
  return [
    times({
      what: "Whole chain by `cni run`: ADD against the floor",
      ours: figure("cni", samples["run.add"]),
      other: figure("C + empty program", withStart),
      goal: { atMost: 2 },
      note: `${add.requests}; ${empty}`,
    }),
    times({
      what: "Whole chain by `cni run`: DEL against the floor",
      ours: figure("cni", samples["run.del"]),
      other: figure("C", samples["floor.del"]),
      goal: { atMost: 1.5 },
      note: `${del.requests}; ${empty}, which is not in the floor here`,
    }),
  ];
}

/** Traces ADD and DEL of one container on a host of their own, where they are made again for others. */
function recordChain(scope: DisposableStack, bench: Bench): RecordedChain {
  const network: Network = wholeChain(bench, "chain3");
  const { host } = inhabitedHost(scope, (host) => byRun(host, bench, network));
  return recordOn(scope, bench, host, network, 1);
}

/** The floor of ADD and DEL on one host. */
export interface RecordedChain {
  readonly add: Floor;
  readonly del: Floor;
  /** Both for a new container, in milliseconds. */
  measure(): { readonly add: number; readonly del: number };
}

/** Traces ADD and DEL of the container of this number on a host that has others. */
export function recordOn(
  scope: DisposableStack,
  bench: Bench,
  host: Netns,
  network: Network,
  number: number,
): RecordedChain {
  const sample: Container = { netns: scope.use(createNetns()), id: "sample", number };
  const record = (verb: string) =>
    recordFloor(bench.state, `${network.name}-${verb}`, host, sample.netns, runCall(bench, network, verb, sample));
  const [add, del] = [record("add"), record("del")];
  const measure = () => {
    const container = scope.use(createNetns());
    return { add: add.run(host, container), del: del.run(host, container) };
  };
  return { add, del, measure };
}
