/** The whole chain: by one process, plugin by plugin, by the reference, and the floor under it. @module */
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import { firstProgram } from "../harness/invocation.ts";
import type { Network } from "../harness/networks.ts";
import { runSuccessfully } from "../harness/process.ts";
import { median } from "../harness/statistics.ts";
import { type Floor, recordedOrReason, recordFloor } from "./floor.ts";
import { interleave, type Samples } from "./measure.ts";
import { type BenchRow, missingRow, row, verbRows } from "./table.ts";
import { type BenchWorkspace, chainNetwork, hostWithContainer, newBenchContainer } from "./workspace.ts";

export function chainRows(bench: BenchWorkspace): readonly BenchRow[] {
  const [run, exec, reference] = [bench.run, bench.exec, bench.reference].map((invocation, number) => {
    const { side } = hostWithContainer(bench, invocation, chainNetwork(bench, `chain${number}`));
    // Containers live until the row is done: while the kernel removes one, it disturbs what is measured.
    return (isUdp: boolean) => (round: number) =>
      side.both(newBenchContainer(bench, `c${round + 1}`, round + 1, isUdp));
  });
  const floor = recordedOrReason(() => {
    const network = chainNetwork(bench, "chain3");
    return recordChain(bench, hostWithContainer(bench, bench.run, network).host, network, 1);
  });
  const samples = interleave(bench.rounds, {
    run: run!(false),
    exec: exec!(false),
    reference: reference!(false),
    ...typeof floor === "string" ? {} : { floor: floor.measure },
    empty: () => runSuccessfully({ argv: [bench.empty] }).ms,
    runUdp: run!(true),
    referenceUdp: reference!(true),
  });
  return [
    ...verbRows(samples, "Whole chain by `cni run`", "run", "reference", { atLeast: 10 }),
    ...verbRows(samples, "Whole chain plugin by plugin", "exec", "reference", { atLeast: 5 }),
    ...typeof floor === "string" ? [missingRow("Whole chain against the floor", floor)] : floorRows(samples, floor),
    ...verbRows(samples, "Whole chain by `cni run`, one of the ports UDP", "runUdp", "referenceUdp"),
  ];
}

function floorRows(samples: Samples, { add, del }: Readonly<Record<"add" | "del", Floor>>): readonly BenchRow[] {
  const start = median(samples["empty"]!);
  const withStart = samples["floor.add"]!.map((value) => value + start);
  const empty = `an empty compiled program takes ${start.toFixed(1)} ms`;
  const against = (verb: "add" | "del", floor: readonly [string, readonly number[]], atMost: number, note: string) => {
    const what = `Whole chain by \`cni run\`: ${verb.toUpperCase()} against the floor`;
    return row(what, "times", samples[`run.${verb}`]!, floor, { atMost, note });
  };
  return [
    against("add", ["C + empty program", withStart], 2, `${add.requests}; ${empty}`),
    against("del", ["C", samples["floor.del"]!], 1.5, `${del.requests}; ${empty}, which is not in the floor here`),
  ];
}

/** Traces ADD and DEL of the container of this number on a host that has others; there they are replayed for new ones. */
export function recordChain(bench: BenchWorkspace, host: Netns, network: Network, number: number) {
  const sample = newBenchContainer(bench, "sample", number);
  const record = (verb: "add" | "del") => {
    const command = firstProgram(bench.run.command(network, verb, { container: sample }));
    return recordFloor(bench.state, `${network.name}-${verb}`, host, sample.namespace, command);
  };
  const [add, del] = [record("add"), record("del")];
  const measure = () => {
    const container = bench.scope.use(createNetns());
    return { add: add.run(host, container), del: del.run(host, container) };
  };
  return { add, del, measure };
}
