/** The same work on a host with more and more containers, two published ports each. @module */
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import { createContainers, recordChainOn } from "./chain.ts";
import { recordedOrReason } from "./floor.ts";
import { interleave, type Samples } from "./measure.ts";
import type { Network } from "../harness/networks.ts";
import { median } from "../harness/statistics.ts";
import {
  addAndDel,
  type BenchContainer,
  chainNetwork,
  type Contender,
  newBenchContainer,
  newContender,
} from "./network.ts";
import { addPeerHost, packetCost } from "./packets.ts";
import type { BenchWorkspace } from "./workspace.ts";
import { attachContainers, copyRules } from "./populate.ts";
import { type BenchRow, ratioRow, speedupRow, summarize } from "./table.ts";

/** One point of the plot. */
export interface PlotPoint {
  readonly containers: number;
  readonly ms: number;
  readonly values: number;
}

/** A line of the plot. */
export interface PlotLine {
  readonly name: string;
  readonly points: readonly PlotPoint[];
}

/** What the section yields. */
export interface ScaleResult {
  readonly rows: readonly BenchRow[];
  readonly lines: readonly PlotLine[];
  readonly remarks: readonly string[];
}

/** How long the reference may take in all, in milliseconds; it grows by the container. */
const REFERENCE_LIMIT_MS = 60_000;
/**
 * So many new containers disturb: each solicits IPv6 routers three times in its first twelve seconds, and the bridge forwards every
 * solicitation to all others, which is millions of packets.
 */
const DISTURBING_COUNT = 1000;
const ROUTER_SOLICITATION_MS = 15_000;
/** Numbers of the containers that are measured, above those that stay. */
const FIRST_MEASURED = 2000;

/** A host of one kind, with what is on it. */
interface ContenderHost {
  readonly netns: Netns;
  readonly network: Network;
  readonly contenders: Readonly<Record<string, Contender>>;
}

export function measureScale(bench: BenchWorkspace): ScaleResult {
  using scope = new DisposableStack();
  const counts = bench.quick ? [1, 10, 50] : [1, 10, 30, 100, 300, 1000];
  const rounds = Math.max(3, Math.ceil(bench.rounds / 4));
  const [first, full] = ["scale0", "scale1"].map((name) => oursHost(scope, bench, name));
  const [firstOther, fullOther] = ["scale2", "scale3"].map((name) => referenceHost(scope, bench, name));
  const newContainer = createContainers(scope, "m");
  let number = FIRST_MEASURED;
  const adds = (sides: Readonly<Record<string, Contender>>) =>
    Object.fromEntries(
      Object.entries(sides).map(([name, side]) => [name, () => addAndDel(side, newContainer(number++))]),
    );
  attachContainers(scope, bench, first.netns, first.network, 0, 1);
  const lines: Record<string, PlotPoint[]> = { "cni run": [], "plugin by plugin": [], reference: [] };
  const remarks = [
    `each point is the median of ${rounds} ADDs; the reference's containers after its first have rules and reservations, but no interfaces`,
  ];
  let spent = 0;
  let attachedCount = 0;
  for (const count of counts) {
    bench.log(`  ${count} containers`);
    attachContainers(scope, bench, full.netns, full.network, attachedCount, count);
    if (attachedCount > 0) copyRules(fullOther.netns, bench, fullOther.network, attachedCount, count);
    attachedCount = count;
    if (count >= DISTURBING_COUNT) Bun.sleepSync(ROUTER_SOLICITATION_MS);
    const withReference = spent < REFERENCE_LIMIT_MS;
    if (!withReference) {
      remarks.push(`the reference was not measured at ${count}: it had taken ${REFERENCE_LIMIT_MS / 1000} s before`);
    }
    const samples = interleave(rounds, adds({ ...full.contenders, ...withReference ? fullOther.contenders : {} }), {
      warmUp: 1,
    });
    for (const verb of ["add", "del"]) for (const ms of samples[`reference.${verb}`] ?? []) spent += ms;
    for (const [name, points] of Object.entries(lines)) {
      const values = samples[`${name}.add`];
      if (values) points.push({ containers: count, ms: median(values), values: values.length });
    }
  }
  const most = counts.at(-1)!;
  const [single, all] = [first, full].map(({ contenders }) => adds(contenders));
  const floor = recordedOrReason(() => {
    const [single, all] = [first, full].map(({ netns, network }) =>
      recordChainOn(scope, bench, netns, network, FIRST_MEASURED - 1).measure
    );
    return { "first floor": single, "full floor": all };
  });
  const again = interleave(bench.rounds, {
    ...prefixed("first", single),
    ...prefixed("full", all),
    ...typeof floor === "string" ? {} : floor,
  });
  const rows = [
    ...growth(again, most),
    ...packetRows(scope, bench, most, [first, full], [firstOther, fullOther], newContainer),
    ...referenceRows(lines, most),
  ];
  return { rows, lines: Object.entries(lines).map(([name, points]) => ({ name, points })), remarks };
}

const prefixed = <T>(prefix: string, sides: Readonly<Record<string, T>>) =>
  Object.fromEntries(Object.entries(sides).map(([name, side]) => [`${prefix} ${name}`, side]));

function oursHost(scope: DisposableStack, bench: BenchWorkspace, name: string): ContenderHost {
  const netns = scope.use(createNetns());
  const network = chainNetwork(bench, name);
  return {
    netns,
    network,
    contenders: {
      "cni run": newContender(netns, bench.run, network),
      "plugin by plugin": newContender(netns, bench.exec, network),
    },
  };
}

function referenceHost(scope: DisposableStack, bench: BenchWorkspace, name: string): ContenderHost {
  const netns = scope.use(createNetns());
  const network = chainNetwork(bench, name);
  const reference = newContender(netns, bench.reference, network);
  reference.add(newBenchContainer(scope, "p0", 0));
  return { netns, network, contenders: { reference } };
}

function growth(samples: Samples, most: number): readonly BenchRow[] {
  const grown = (side: string, verb: string): number =>
    median(samples[`full ${side}.${verb}`] ?? []) - median(samples[`first ${side}.${verb}`] ?? []);
  return ["cni run", "plugin by plugin"].flatMap((side) =>
    ["add", "del"].map((verb) =>
      ratioRow({
        what: `${verb.toUpperCase()} at ${most} containers against 1, ${side}`,
        ours: summarize(`at ${most}`, samples[`full ${side}.${verb}`]),
        other: summarize("at 1", samples[`first ${side}.${verb}`]),
        ...verb === "add" ? { goal: { atMost: 1.15 } } : {},
        note: `${grown(side, verb).toFixed(1)} ms more; the C program with the requests of cni run: ` +
          `${grown("floor", verb).toFixed(1)} ms more`,
      })
    )
  );
}

function referenceRows(lines: Readonly<Record<string, readonly PlotPoint[]>>, most: number): readonly BenchRow[] {
  const last = (name: string) => lines[name].find(({ containers }) => containers === most);
  const [ours, other] = [last("cni run"), last("reference")];
  if (!ours || !other) return [];
  return [speedupRow({
    what: `ADD at ${most} containers by \`cni run\` against the reference`,
    ours: summarize("cni", [ours.ms]),
    other: summarize("reference", [other.ms]),
  })];
}

/** Attaches one more container to each host and sends packets to its ports. */
function packetRows(
  scope: DisposableStack,
  bench: BenchWorkspace,
  most: number,
  ours: readonly ContenderHost[],
  reference: readonly ContenderHost[],
  newContainer: (number: number, isUdp?: boolean) => BenchContainer,
): readonly BenchRow[] {
  const side = ({ netns, contenders }: ContenderHost) => {
    const container = newContainer(1900, true);
    Object.values(contenders)[0].add(container);
    const outside = addPeerHost(scope, netns);
    return () => packetCost(outside, container);
  };
  const [first, full] = ours.map(side);
  const [firstOther, fullOther] = reference.map(side);
  const samples = interleave(Math.max(5, Math.ceil(bench.rounds / 2)), { first, full, firstOther, fullOther });
  const row = (side: string, what: string, kind: string, [one, all]: readonly [string, string]) =>
    ratioRow({
      what: `${what} at ${most} containers against 1, ${side}`,
      unit: "µs",
      ours: summarize(`at ${most}`, samples[`${all}.${kind}`]),
      other: summarize("at 1", samples[`${one}.${kind}`]),
      ...side === "cni" ? { goal: { atMost: 1.15 } } : {},
    });
  return [["A connection to a published port", "connection"], ["A packet to a published port", "packet"]].flatMap((
    [what, kind],
  ) => [row("cni", what, kind, ["first", "full"]), row("reference", what, kind, ["firstOther", "fullOther"])]);
}
