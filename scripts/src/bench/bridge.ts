/** A bridge with addresses and nothing else, by exec: what of it is the plugin's own, and the reference. @module */
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import { containers, inhabitedHost } from "./chain.ts";
import { compileNothing, recorded, recordFloor } from "./floor.ts";
import { interleave, median, type Samples } from "./measure.ts";
import { addAndDel, byExec, type Container, type Network, plainNetwork, pluginCall, type Side } from "./network.ts";
import { type Bench, REFERENCE } from "./workspace.ts";
import { must, run } from "./process.ts";
import { faster, figure, missing, plain, type Row } from "./table.ts";

export function plainRows(bench: Bench): readonly Row[] {
  using scope = new DisposableStack();
  const floor = recorded(() => recordBridge(scope, bench));
  const make = containers(scope, "c");
  const side = (directory: string, network: Network): (round: number) => { add: number; del: number } => {
    const { side } = inhabitedHost(scope, (host): Side => byExec(host, directory, network));
    return (round) => addAndDel(side, make(round + 1));
  };
  const samples = interleave(bench.rounds, {
    cni: side(bench.plugins, plainNetwork(bench, "plain0")),
    reference: side(REFERENCE, plainNetwork(bench, "plain1")),
    masqueraded: side(bench.plugins, plainNetwork(bench, "plain2", true)),
    referenceMasqueraded: side(REFERENCE, plainNetwork(bench, "plain3", true)),
    empty: () => {
      const { ms, userMs } = must({ argv: [bench.empty] });
      return { ms, userMs };
    },
    ...typeof floor === "string" ? {} : floor,
  });
  const against = (verb: string) =>
    faster({
      what: `bridge + host-local without rules, exec'ed: ${verb.toUpperCase()}`,
      ours: figure("cni", samples[`cni.${verb}`]),
      other: figure("reference", samples[`reference.${verb}`]),
      goal: { atLeast: 1 },
    });
  const masqueraded = (verb: string) =>
    faster({
      what: `The same with ipMasq: ${verb.toUpperCase()}`,
      ours: figure("cni", samples[`masqueraded.${verb}`]),
      other: figure("reference", samples[`referenceMasqueraded.${verb}`]),
    });
  const rules = [masqueraded("add"), masqueraded("del")];
  return [against("add"), against("del"), ownTime(samples, floor), ...rules];
}

/**
 * What ADD takes above an empty program, less what a C program takes for the same requests above one that makes none: what is spent
 * outside the kernel's work on the requests, page faults of the program included.
 */
function ownTime(samples: Samples, floor: unknown): Row {
  const what = "User-space time of a bridge ADD above an empty compiled program";
  if (typeof floor === "string") return missing(what, floor);
  const [empty, nothing] = [median(samples["empty.ms"]), median(samples["nothing"])];
  const own = samples["bridge.ms"].map((ms, round) => ms - empty - (samples["floor"][round] - nothing));
  const user = median(samples["bridge.userMs"]) - median(samples["empty.userMs"]);
  const requests = median(samples["floor"]) - nothing;
  return plain({
    what,
    ours: figure("cni", own),
    goal: { atMost: 3 },
    note:
      `ADD ${median(samples["bridge.ms"]).toFixed(2)} ms - empty program ${
        empty.toFixed(2)
      } ms - requests, made by a C program, ` +
      `${requests.toFixed(2)} ms; by getrusage(2), in ticks that may be coarse, ${user.toFixed(2)} ms`,
  });
}

function recordBridge(scope: DisposableStack, bench: Bench) {
  const call = (network: Network, command: string, container: Container) =>
    pluginCall(bench.plugins, network, "bridge", command, container);
  // The floor leaves what is beside the reservations as it was when it was recorded: our own call needs a place of its own.
  const [network, ownNetwork] = ["plain4", "plain5"].map((name) => plainNetwork(bench, name));
  const [{ host }, own] = [network, ownNetwork].map((network) =>
    inhabitedHost(scope, (host) => byExec(host, bench.plugins, network))
  );
  const sample: Container = { netns: scope.use(createNetns()), id: "sample", number: 1 };
  const program = recordFloor(bench.state, "bridge", host, sample.netns, call(network, "ADD", sample));
  const nothing = compileNothing(bench.state);
  const undo = (netns: Netns) => host.run(() => must(call(network, "DEL", { ...sample, netns })));
  undo(sample.netns);
  return {
    bridge: (round: number) => {
      const container: Container = { netns: scope.use(createNetns()), id: `c${round}`, number: 0 };
      const { ms, userMs } = own.host.run(() => must(call(ownNetwork, "ADD", container)));
      own.side.del(container);
      return { ms, userMs };
    },
    floor: () => {
      const netns = scope.use(createNetns());
      const ms = program.run(host, netns);
      undo(netns);
      return ms;
    },
    nothing: () => run(nothing).ms,
  };
}
