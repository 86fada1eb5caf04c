/** Calls through shims and a server, against the reference, beside the same calls without a server. @module */
import { REFERENCE_DIRECTORY } from "../../../testing/reference_host.ts";
import { createNetns } from "../../../ffi/netns/netns.ts";
import { median } from "../harness/statistics.ts";
import { chainFloors, FLOOR_NAMES } from "./chain.ts";
import { awaitNamespaceCleanup, interleave, type Samples } from "./measure.ts";
import { FEW, hostLocalSide } from "./reservations.ts";
import type { Invocation } from "../harness/invocation.ts";
import type { Network } from "../harness/networks.ts";
import { type ShimServer, startShimServer } from "../harness/server.ts";
import { startupSide, statusCommand, versionCommand } from "./startup.ts";
import { type BenchFigures, type BenchRow, formatNumber, row, verbRows } from "./table.ts";
import { timeParts } from "./times.ts";
import {
  attachingSide,
  type BenchWorkspace,
  chainNetwork,
  hostWithContainer,
  newBenchContainer,
  newContender,
  plainNetwork,
} from "./workspace.ts";

export function serveRows(bench: BenchWorkspace): Pick<BenchFigures, "rows" | "times"> {
  const server = startShimServer(bench);
  const parts = [chain, byPipes, plainBridge, startup, hostLocal].flatMap((part) => part(bench, server));
  return { rows: [...parts, firstCall(bench)], times: timeParts(bench, server) };
}

function chain(bench: BenchWorkspace, server: ShimServer): readonly BenchRow[] {
  const { replay, minimal } = chainFloors(bench, "floor1", true);
  const samples = interleave(bench.rounds, {
    run: attachingSide(bench, server.run, chainNetwork(bench, "served0"), true),
    exec: attachingSide(bench, server.exec, chainNetwork(bench, "served1"), true),
    cold: attachingSide(bench, bench.run, chainNetwork(bench, "served2"), true),
    coldExec: attachingSide(bench, bench.exec, chainNetwork(bench, "served3"), true),
    reference: attachingSide(bench, bench.reference, chainNetwork(bench, "served4"), true),
    replay: replay.measure,
    minimal,
  });
  const what = "Whole chain with a TCP and a UDP port";
  return [
    ...verbRows(samples, `${what}, plugin by plugin, served`, "exec", "reference", { atLeast: 10 }, { atLeast: 6 }),
    ...verbRows(samples, `${what}, by \`cni run\`, served`, "run", "reference", { atLeast: 14 }, { atLeast: 6 }),
    ...verbRows(samples, `${what}, by \`cni run\`, not served`, "cold", "reference", { atLeast: 4.5 }, {}),
    ...verbRows(samples, `${what}, plugin by plugin, not served`, "coldExec", "reference", { atLeast: 2.2 }, {}),
    ...servedFloorRows(samples, what),
  ];
}

const servedFloorRows = (samples: Samples, what: string): readonly BenchRow[] =>
  ["add", "del"].flatMap((verb) =>
    Object.entries(FLOOR_NAMES).map(([side, name]) => {
      const title = `${what}, by \`cni run\`, served: ${verb.toUpperCase()} against C`;
      return row(title, "times", samples[`run.${verb}`]!, [name, samples[`${side}.${verb}`]!]);
    })
  );

function plainBridge(bench: BenchWorkspace, server: ShimServer): readonly BenchRow[] {
  const samples = interleave(bench.rounds, {
    served: attachingSide(bench, server.exec, plainNetwork(bench, "served5")),
    cold: attachingSide(bench, bench.exec, plainNetwork(bench, "served6")),
    reference: attachingSide(bench, bench.reference, plainNetwork(bench, "served7")),
  });
  const goal = (verb: string, atLeast: number) => ({ atLeast, note: coldNote(samples[`cold.${verb}`]!) });
  const what = "bridge + host-local without rules, exec'ed, served";
  return verbRows(samples, what, "served", "reference", goal("add", 3), goal("del", 1));
}

const coldNote = (values: readonly number[]): string => `${formatNumber(median(values))} ms without the server`;

/** The reference knows no STATUS. */
function startup(bench: BenchWorkspace, { shims, through }: ShimServer): readonly BenchRow[] {
  const time = startupSide(bench.scope.use(createNetns()));
  const samples = interleave(bench.rounds * 3, {
    VERSION: time(through(versionCommand(shims))),
    STATUS: time(through(statusCommand(bench, shims))),
    "cold VERSION": time(versionCommand(bench.plugins)),
    "cold STATUS": time(statusCommand(bench, bench.plugins)),
    reference: time(versionCommand(REFERENCE_DIRECTORY)),
  });
  const reference = ["VERSION of the reference", samples["reference"]!] as const;
  return ["VERSION", "STATUS"].map((verb) =>
    row(`${verb} of bridge, served`, "faster", samples[verb]!, reference, {
      atLeast: 2,
      note: coldNote(samples[`cold ${verb}`]!),
    })
  );
}

function hostLocal(bench: BenchWorkspace, { shims, through }: ShimServer): readonly BenchRow[] {
  const samples = interleave(bench.rounds, {
    served: hostLocalSide(bench, shims, "served", FEW, through),
    cold: hostLocalSide(bench, bench.plugins, "not-served", FEW),
    reference: hostLocalSide(bench, REFERENCE_DIRECTORY, "served-reference", FEW),
  });
  const goal = (verb: string) => ({ atLeast: 1, note: coldNote(samples[`cold.${verb}`]!) });
  const what = `host-local with ${FEW} reservations, served`;
  return verbRows(samples, what, "served", "reference", goal("add"), goal("del"));
}

/** As engines call: by pipes, with few calls before, and settings for every plugin. */
function byPipes(bench: BenchWorkspace): readonly BenchRow[] {
  const { exec, run } = startShimServer(bench);
  const network = (name: string): Network => {
    const { plugins, ...rest } = chainNetwork(bench, name);
    const sysctl = { "net.ipv4.conf.all.arp_filter": "1" };
    return { ...rest, plugins: plugins.map((each) => each.type === "tuning" ? { ...each, sysctl } : each) };
  };
  const withPipes = (invocation: Invocation): Invocation => ({
    ...invocation,
    *command(...call) {
      const sequence = invocation.command(...call);
      let step = sequence.next();
      while (!step.done) step = sequence.next(yield { ...step.value, hasPipes: true });
      return step.value;
    },
  });
  const samples = interleave(8, {
    served: attachingSide(bench, withPipes(exec), network("served8"), true),
    run: attachingSide(bench, withPipes(run), network("served10"), true),
    cold: attachingSide(bench, withPipes(bench.exec), network("served11"), true),
    reference: attachingSide(bench, withPipes(bench.reference), network("served9"), true),
  }, { warmUp: 1 });
  const what = "Whole chain with ports and a setting, by pipes";
  return [
    ...verbRows(
      samples,
      `${what}, plugin by plugin, served by a new server`,
      "served",
      "reference",
      { atLeast: 10 },
      {},
    ),
    ...verbRows(samples, `${what}, by \`cni run\`, served by a new server`, "run", "reference", { atLeast: 14 }, {}),
    ...verbRows(samples, `${what}, plugin by plugin, not served`, "cold", "reference"),
  ];
}

/** The first call of new servers against those that follow. */
function firstCall(bench: BenchWorkspace): BenchRow {
  const [first, later]: [number[], number[]] = [[], []];
  for (let round = 0; round < (bench.quick ? 3 : 10); round++) {
    using scope = new DisposableStack();
    const own = { ...bench, scope };
    const network = chainNetwork(bench, `first${round}`);
    const { host } = hostWithContainer(own, bench.run, network);
    const { add } = newContender(host, startShimServer(own).run, network);
    const calls = Array.from({ length: 10 }, (_, at) => add(newBenchContainer(own, `f${at}`, at + 1, true)));
    first.push(calls[0]!);
    later.push(...calls.slice(1));
    scope.dispose();
    awaitNamespaceCleanup();
  }
  return row("First ADD of a new server, whole chain by `cni run`", "times", first, ["median", later], { atMost: 1.5 });
}
