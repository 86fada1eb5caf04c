/** A bridge with addresses and nothing else, by exec: against the reference, and the time in user space. @module */
import type { Netns } from "../../../ffi/netns/netns.ts";
import { pluginCommand, type Verb } from "../harness/invocation.ts";
import type { Network } from "../harness/networks.ts";
import { runProcess, runSuccessfully } from "../harness/process.ts";
import { median } from "../harness/statistics.ts";
import { compileNothing, recordFloor } from "./floor.ts";
import { interleave, type Samples } from "./measure.ts";
import { type BenchRow, row, verbRows } from "./table.ts";
import {
  attachingSide,
  type BenchContainer,
  type BenchWorkspace,
  hostWithContainer,
  newBenchContainer,
  plainNetwork,
} from "./workspace.ts";

export function bridgeRows(bench: BenchWorkspace): readonly BenchRow[] {
  const samples = interleave(bench.rounds, {
    cni: attachingSide(bench, bench.exec, plainNetwork(bench, "plain0")),
    reference: attachingSide(bench, bench.reference, plainNetwork(bench, "plain1")),
    masqueraded: attachingSide(bench, bench.exec, plainNetwork(bench, "plain2", true)),
    referenceMasqueraded: attachingSide(bench, bench.reference, plainNetwork(bench, "plain3", true)),
    empty: () => runSuccessfully({ argv: [bench.empty] }).ms,
    ...recordBridge(bench),
  });
  return [
    ...verbRows(samples, "bridge + host-local without rules, exec'ed", "cni", "reference", { atLeast: 0.85 }),
    timeAboveFloor(samples),
    ...verbRows(samples, "The same with ipMasq", "masqueraded", "referenceMasqueraded"),
  ];
}

/** ADD less the start of a compiled program, and less the kernel's work, which a C program with the same requests measures. */
function timeAboveFloor(samples: Samples): BenchRow {
  const what = "User-space time of a bridge ADD above an empty compiled program";
  const [add, empty, nothing] = ["bridge", "empty", "nothing"].map((name) => median(samples[name]!));
  const ownMs = samples["bridge"]!.map((ms, round) => ms - empty! - (samples["floor"]![round]! - nothing!));
  const requests = median(samples["floor"]!) - nothing!;
  const [addMs, emptyMs, requestsMs] = [add!, empty!, requests].map((ms) => `${ms.toFixed(2)} ms`);
  const note = `ADD ${addMs} - empty program ${emptyMs} - requests, made by a C program, ${requestsMs}`;
  return row(what, "alone", ownMs, undefined, { atMost: 3, note });
}

function recordBridge(bench: BenchWorkspace) {
  const call = (network: Network, verb: Verb, container: BenchContainer) =>
    pluginCommand(network, network.plugins[0]!, verb, { container }, bench.plugins);
  // The floor replays a state of the reservations as it was recorded: our own call needs a network of its own.
  const [network, ownNetwork] = [plainNetwork(bench, "plain4"), plainNetwork(bench, "plain5")];
  const { host } = hostWithContainer(bench, bench.exec, network);
  const own = hostWithContainer(bench, bench.exec, ownNetwork);
  const sample = newBenchContainer(bench, "sample", 1);
  const program = recordFloor(bench.state, "bridge", host, sample.netns, call(network, "add", sample));
  const nothing = compileNothing(bench.state);
  const undo = ({ path }: Netns) => host.run(() => runSuccessfully(call(network, "del", { ...sample, netns: path })));
  undo(sample.namespace);
  return {
    bridge: (round: number) => {
      const container = newBenchContainer(bench, `c${round}`, 0);
      const { ms } = own.host.run(() => runSuccessfully(call(ownNetwork, "add", container)));
      own.side.del(container);
      return ms;
    },
    floor: () => {
      const { namespace } = newBenchContainer(bench, "floor", 1);
      const ms = program.run(host, namespace);
      undo(namespace);
      return ms;
    },
    nothing: () => runProcess(nothing).ms,
  };
}
