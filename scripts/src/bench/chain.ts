/** The whole chain: by one process, plugin by plugin, by the reference, and the floor under it. @module */
import { createNetns, type Netns } from "../../../ffi/netns/netns.ts";
import { firstProgram } from "../harness/invocation.ts";
import type { Network } from "../harness/networks.ts";
import { runSuccessfully } from "../harness/process.ts";
import { median } from "../harness/statistics.ts";
import { type Floor, recordFloor } from "./floor.ts";
import { interleave, type Samples } from "./measure.ts";
import { compileMinimal } from "./minimal.ts";
import { type BenchRow, row, verbRows } from "./table.ts";
import { attachingSide, type BenchWorkspace, chainNetwork, hostWithContainer, newBenchContainer } from "./workspace.ts";

export function chainRows(bench: BenchWorkspace): readonly BenchRow[] {
  const { replay, minimal } = chainFloors(bench, "floor0", false);
  const samples = interleave(bench.rounds, {
    run: attachingSide(bench, bench.run, chainNetwork(bench, "chain0")),
    exec: attachingSide(bench, bench.exec, chainNetwork(bench, "chain1")),
    reference: attachingSide(bench, bench.reference, chainNetwork(bench, "chain2")),
    replay: replay.measure,
    minimal,
    empty: () => runSuccessfully({ argv: [bench.empty] }).ms,
  });
  return [
    ...verbRows(samples, "Whole chain by `cni run`", "run", "reference", { atLeast: 4.5 }),
    ...verbRows(samples, "Whole chain plugin by plugin", "exec", "reference", { atLeast: 2.2 }),
    ...floorRows(samples, replay),
  ];
}

function floorRows(samples: Samples, { add, del }: Readonly<Record<"add" | "del", Floor>>): readonly BenchRow[] {
  const start = median(samples["empty"]!);
  const empty = `an empty compiled program takes ${start.toFixed(1)} ms`;
  const goals = { add: 2, del: 1.5 };
  return (["minimal", "replay"] as const).flatMap((side) =>
    (["add", "del"] as const).map((verb) => {
      const own = side === "replay" ? `${{ add, del }[verb].requests}; ` : "";
      const note = `${own}${empty}${verb === "add" ? "" : ", which is not in the floor here"}`;
      // A DEL waits for the kernel so long that its start does not count.
      const floor = samples[`${side}.${verb}`]!.map((ms) => verb === "add" ? ms + start : ms);
      const name = `${FLOOR_NAMES[side]}${verb === "add" ? " + empty program" : ""}`;
      const what = `Whole chain by \`cni run\`: ${verb.toUpperCase()} against the floor`;
      const options = side === "minimal" ? { note, atMost: goals[verb] } : { note };
      return row(what, "times", samples[`run.${verb}`]!, [name, floor], options);
    })
  );
}

export const FLOOR_NAMES = { minimal: "minimal C", replay: "C, our requests" } as const;

/** The C programs that do the same: with our requests, and with as few as possible. */
export function chainFloors(bench: BenchWorkspace, name: string, isUdp: boolean) {
  const network = chainNetwork(bench, name);
  const { host } = hostWithContainer(bench, bench.run, network);
  return { replay: recordChain(bench, host, network, 1, isUdp), minimal: compileMinimal(bench, `${name}m`) };
}

/** Traces ADD and DEL of the container of this number on a host that has others; there they are replayed for new ones. */
export function recordChain(bench: BenchWorkspace, host: Netns, network: Network, number: number, isUdp = false) {
  const sample = newBenchContainer(bench, "sample", number, isUdp);
  const record = (verb: "add" | "del") => {
    const command = firstProgram(bench.run.command(network, verb, { container: sample }));
    return recordFloor(bench.state, `${network.name}-${verb}`, host, sample.netns, command);
  };
  const [add, del] = [record("add"), record("del")];
  const measure = () => {
    const container = bench.scope.use(createNetns());
    return { add: add.run(host, container), del: del.run(host, container) };
  };
  return { add, del, measure };
}
