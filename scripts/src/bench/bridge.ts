/** A bridge with addresses and nothing else, by exec: against the reference, and the time in user space. @module */
import type { Netns } from "../../../ffi/netns.ts";
import { createContainers, hostWithContainer } from "./chain.ts";
import { compileNothing, recordedOrReason, recordFloor } from "./floor.ts";
import { interleave, type Samples } from "./measure.ts";
import { type Invocation, pluginCommand, type Verb } from "../harness/invocation.ts";
import type { Network } from "../harness/networks.ts";
import { runProcess, runSuccessfully } from "../harness/process.ts";
import { median } from "../harness/statistics.ts";
import { addAndDel, type BenchContainer, newBenchContainer, plainNetwork } from "./network.ts";
import type { BenchWorkspace } from "./workspace.ts";
import { type BenchRow, missingRow, plainRow, speedupRow, summarize } from "./table.ts";

export function bridgeRows(bench: BenchWorkspace): readonly BenchRow[] {
  using scope = new DisposableStack();
  const floor = recordedOrReason(() => recordBridge(scope, bench));
  const newContainer = createContainers(scope, "c");
  const side = (invocation: Invocation, network: Network): (round: number) => { add: number; del: number } => {
    const { side } = hostWithContainer(scope, invocation, network);
    return (round) => addAndDel(side, newContainer(round + 1));
  };
  const samples = interleave(bench.rounds, {
    cni: side(bench.exec, plainNetwork(bench, "plain0")),
    reference: side(bench.reference, plainNetwork(bench, "plain1")),
    masqueraded: side(bench.exec, plainNetwork(bench, "plain2", true)),
    referenceMasqueraded: side(bench.reference, plainNetwork(bench, "plain3", true)),
    empty: () => {
      const { ms, userMs } = runSuccessfully({ argv: [bench.empty] });
      return { ms, userMs };
    },
    ...typeof floor === "string" ? {} : floor,
  });
  const against = (verb: string) =>
    speedupRow({
      what: `bridge + host-local without rules, exec'ed: ${verb.toUpperCase()}`,
      ours: summarize("cni", samples[`cni.${verb}`]),
      other: summarize("reference", samples[`reference.${verb}`]),
      goal: { atLeast: 1 },
    });
  const masqueraded = (verb: string) =>
    speedupRow({
      what: `The same with ipMasq: ${verb.toUpperCase()}`,
      ours: summarize("cni", samples[`masqueraded.${verb}`]),
      other: summarize("reference", samples[`referenceMasqueraded.${verb}`]),
    });
  const rules = [masqueraded("add"), masqueraded("del")];
  return [against("add"), against("del"), timeAboveFloor(samples, floor), ...rules];
}

/**
 * The time of ADD above that of an empty program, less that of a C program for the same requests above one that makes none. Page faults
 * of the program are in it, the kernel's work on the requests is not.
 */
function timeAboveFloor(samples: Samples, floor: unknown): BenchRow {
  const what = "User-space time of a bridge ADD above an empty compiled program";
  if (typeof floor === "string") return missingRow(what, floor);
  const [empty, nothing] = [median(samples["empty.ms"]), median(samples["nothing"])];
  const ownMs = samples["bridge.ms"].map((ms, round) => ms - empty - (samples["floor"][round] - nothing));
  const user = median(samples["bridge.userMs"]) - median(samples["empty.userMs"]);
  const requests = median(samples["floor"]) - nothing;
  return plainRow({
    what,
    ours: summarize("cni", ownMs),
    goal: { atMost: 3 },
    note:
      `ADD ${median(samples["bridge.ms"]).toFixed(2)} ms - empty program ${
        empty.toFixed(2)
      } ms - requests, made by a C program, ` +
      `${requests.toFixed(2)} ms; by getrusage(2), in ticks that may be coarse, ${user.toFixed(2)} ms`,
  });
}

function recordBridge(scope: DisposableStack, bench: BenchWorkspace) {
  const call = (network: Network, verb: Verb, container: BenchContainer) =>
    pluginCommand(network, network.plugins[0], verb, { container }, bench.plugins);
  // The floor replays a state of the reservations as it was recorded: our own call needs a network of its own.
  const [network, ownNetwork] = ["plain4", "plain5"].map((name) => plainNetwork(bench, name));
  const { host } = hostWithContainer(scope, bench.exec, network);
  const own = hostWithContainer(scope, bench.exec, ownNetwork);
  const sample = newBenchContainer(scope, "sample", 1);
  const program = recordFloor(bench.state, "bridge", host, sample.namespace, call(network, "add", sample));
  const nothing = compileNothing(bench.state);
  const undo = ({ path }: Netns) => host.run(() => runSuccessfully(call(network, "del", { ...sample, netns: path })));
  undo(sample.namespace);
  return {
    bridge: (round: number) => {
      const container = newBenchContainer(scope, `c${round}`, 0);
      const { ms, userMs } = own.host.run(() => runSuccessfully(call(ownNetwork, "add", container)));
      own.side.del(container);
      return { ms, userMs };
    },
    floor: () => {
      const { namespace } = newBenchContainer(scope, "floor", 1);
      const ms = program.run(host, namespace);
      undo(namespace);
      return ms;
    },
    nothing: () => runProcess(nothing).ms,
  };
}
