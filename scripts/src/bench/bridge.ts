/** A bridge with addresses and nothing else, by exec: what of it is the plugin's own, and the reference. @module */
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import { createContainers, hostWithContainer } from "./chain.ts";
import { compileNothing, recordedOrReason, recordFloor } from "./floor.ts";
import { interleave, median, type Samples } from "./measure.ts";
import {
  addAndDel,
  type BenchContainer,
  type BenchNetwork,
  type Contender,
  execContender,
  plainNetwork,
  pluginCall,
} from "./network.ts";
import { type BenchWorkspace, REFERENCE_DIRECTORY } from "./workspace.ts";
import { runProcess, runSuccessfully } from "./process.ts";
import { type BenchRow, missingRow, plainRow, speedupRow, summarize } from "./table.ts";

export function bridgeRows(bench: BenchWorkspace): readonly BenchRow[] {
  using scope = new DisposableStack();
  const floor = recordedOrReason(() => recordBridge(scope, bench));
  const make = createContainers(scope, "c");
  const side = (directory: string, network: BenchNetwork): (round: number) => { add: number; del: number } => {
    const { side } = hostWithContainer(scope, (host): Contender => execContender(host, directory, network));
    return (round) => addAndDel(side, make(round + 1));
  };
  const samples = interleave(bench.rounds, {
    cni: side(bench.plugins, plainNetwork(bench, "plain0")),
    reference: side(REFERENCE_DIRECTORY, plainNetwork(bench, "plain1")),
    masqueraded: side(bench.plugins, plainNetwork(bench, "plain2", true)),
    referenceMasqueraded: side(REFERENCE_DIRECTORY, plainNetwork(bench, "plain3", true)),
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
 * What ADD takes above an empty program, less what a C program takes for the same requests above one that makes none: what is spent
 * outside the kernel's work on the requests, page faults of the program included.
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
  const call = (network: BenchNetwork, command: string, container: BenchContainer) =>
    pluginCall(bench.plugins, network, "bridge", command, container);
  // The floor leaves what is beside the reservations as it was when it was recorded: our own call needs a place of its own.
  const [network, ownNetwork] = ["plain4", "plain5"].map((name) => plainNetwork(bench, name));
  const [{ host }, nestedHost] = [network, ownNetwork].map((network) =>
    hostWithContainer(scope, (host) => execContender(host, bench.plugins, network))
  );
  const sample: BenchContainer = { netns: scope.use(createNetns()), id: "sample", number: 1 };
  const program = recordFloor(bench.state, "bridge", host, sample.netns, call(network, "ADD", sample));
  const nothing = compileNothing(bench.state);
  const undo = (netns: Netns) => host.run(() => runSuccessfully(call(network, "DEL", { ...sample, netns })));
  undo(sample.netns);
  return {
    bridge: (round: number) => {
      const container: BenchContainer = { netns: scope.use(createNetns()), id: `c${round}`, number: 0 };
      const { ms, userMs } = nestedHost.host.run(() => runSuccessfully(call(ownNetwork, "ADD", container)));
      nestedHost.side.del(container);
      return { ms, userMs };
    },
    floor: () => {
      const netns = scope.use(createNetns());
      const ms = program.run(host, netns);
      undo(netns);
      return ms;
    },
    nothing: () => runProcess(nothing).ms,
  };
}
