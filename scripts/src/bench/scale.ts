/** The same work on a host with more and more containers, two published ports each. @module */
import { createNetns, type Netns } from "../../../ffi/netns/netns.ts";
import type { Invocation } from "../harness/invocation.ts";
import { median } from "../harness/statistics.ts";
import { recordChain } from "./chain.ts";
import { interleave, type Samples } from "./measure.ts";
import { addPeerHost, packetCost } from "./packets.ts";
import { attachContainers, copyRules } from "./populate.ts";
import { startShimServer } from "../harness/server.ts";
import { type BenchRow, row, type ScaleLine } from "./table.ts";
import { type BenchWorkspace, chainNetwork, type Contender, newBenchContainer, newContender } from "./workspace.ts";

/** How long the reference may take in all, in milliseconds; it grows by the container. */
const REFERENCE_LIMIT_MS = 60_000;
/** From so many on, wait: each new container solicits IPv6 routers for twelve seconds, and the bridge floods that to all others. */
const DISTURBING_COUNT = 300;
const ROUTER_SOLICITATION_MS = 15_000;
/** Numbers of the containers that are measured, above those that stay. */
const FIRST_MEASURED = 2000;
type Contenders = Readonly<Record<string, Contender>>;

export function measureScale(bench: BenchWorkspace) {
  const counts = bench.quick ? [1, 10, 50] : [1, 10, 30, 100, 300, 1000];
  const rounds = Math.max(3, Math.ceil(bench.rounds / 4));
  const ours = { "cni run": bench.run, "plugin by plugin": bench.exec, "cni run, served": startShimServer(bench).run };
  const others = { reference: bench.reference };
  const [first, full] = [newHost(bench, "scale0", ours), newHost(bench, "scale1", ours)];
  const [firstOther, fullOther] = [newHost(bench, "scale2", others), newHost(bench, "scale3", others)];
  for (const { contenders } of [firstOther, fullOther]) contenders["reference"]!.add(newBenchContainer(bench, "p0", 0));
  let number = FIRST_MEASURED;
  const adds = (sides: Contenders, prefix = "") =>
    Object.fromEntries(
      Object.entries(sides).map(([name, side]) => [
        `${prefix}${name}`,
        () => side.both(newBenchContainer(bench, `m${number}`, number++)),
      ]),
    );
  attachContainers(bench, first.netns, first.network, 0, 1);
  const points: Record<string, { containers: number; ms: number }[]> = {
    "cni run": [],
    "plugin by plugin": [],
    "cni run, served": [],
    reference: [],
  };
  const remarks = [
    `Each figure is the median of ${rounds} ADDs.`,
    "The reference's containers after its first have rules and reservations, but no interfaces.",
  ];
  let spent = 0;
  let attachedCount = 0;
  for (const count of counts) {
    console.error(`  ${count} containers`);
    attachContainers(bench, full.netns, full.network, attachedCount, count);
    if (attachedCount > 0) copyRules(fullOther.netns, bench, fullOther.network, attachedCount, count);
    attachedCount = count;
    if (count >= DISTURBING_COUNT) Bun.sleepSync(ROUTER_SOLICITATION_MS);
    const withReference = spent < REFERENCE_LIMIT_MS;
    if (!withReference) {
      remarks.push(`The reference was not measured at ${count}: it had taken ${REFERENCE_LIMIT_MS / 1000} s before.`);
    }
    const sides = { ...full.contenders, ...withReference ? fullOther.contenders : {} };
    const samples = interleave(rounds, adds(sides), { warmUp: 1 });
    for (const verb of ["add", "del"]) for (const ms of samples[`reference.${verb}`] ?? []) spent += ms;
    for (const [name, line] of Object.entries(points)) {
      const values = samples[`${name}.add`];
      if (values) line.push({ containers: count, ms: median(values) });
    }
  }
  const most = counts.at(-1)!;
  const floorOf = ({ netns, network }: typeof first) => recordChain(bench, netns, network, FIRST_MEASURED - 1).measure;
  const again = interleave(bench.rounds, {
    ...adds(first.contenders, "first "),
    ...adds(full.contenders, "full "),
    "first floor": floorOf(first),
    "full floor": floorOf(full),
  });
  const lines = Object.entries(points).map(([name, line]): ScaleLine => ({ name, points: line }));
  const last = (name: string) => points[name]!.filter(({ containers }) => containers === most).map(({ ms }) => ms);
  const against = ["reference", last("reference")] as const;
  const rows = [
    ...growth(again, most),
    ...packetRows(bench, most, { first, full, firstOther, fullOther }),
    aboveFloor(again, most),
    row(`ADD at ${most} containers by \`cni run\` against the reference`, "faster", last("cni run"), against),
  ];
  return { rows, lines, remarks };
}

function newHost(bench: BenchWorkspace, name: string, sides: Record<string, Invocation>) {
  const netns = bench.scope.use(createNetns());
  const network = chainNetwork(bench, name);
  const contenders: Contenders = Object.fromEntries(
    Object.entries(sides).map(([side, invocation]) => [side, newContender(netns, invocation, network)]),
  );
  return { netns, network, contenders };
}

function growth(samples: Samples, most: number): readonly BenchRow[] {
  const grown = (side: string, verb: string): string =>
    `${(median(samples[`full ${side}.${verb}`]!) - median(samples[`first ${side}.${verb}`]!)).toFixed(1)} ms`;
  return ["cni run", "plugin by plugin", "cni run, served"].flatMap((side) =>
    ["add", "del"].map((verb) => {
      const [one, all] = ["first", "full"].map((host) => samples[`${host} ${side}.${verb}`]!);
      const what = `${verb.toUpperCase()} at ${most} containers against 1, ${side}`;
      const [own, floor] = [grown(side, verb), grown("floor", verb)];
      const note = `${own} more; the C program with the requests of cni run: ${floor} more`;
      return row(what, "times", all!, ["at 1", one!], { note, ...verb === "add" ? { atMost: 1.15 } : {} });
    })
  );
}

function aboveFloor(samples: Samples, most: number): BenchRow {
  const floor = samples["full floor.add"]!;
  const what = `ADD at ${most} containers by \`cni run\`, served, above a C program with the requests of \`cni run\``;
  return row(what, "more", samples["full cni run, served.add"]!, ["C", floor], { atMost: 3.5 });
}

function packetRows(
  bench: BenchWorkspace,
  most: number,
  hosts: Readonly<Record<string, { readonly netns: Netns; readonly contenders: Contenders }>>,
): readonly BenchRow[] {
  const sides = Object.entries(hosts).map(([name, { netns, contenders }]) => {
    const container = newBenchContainer(bench, "packets", 1900, true);
    Object.values(contenders)[0]!.add(container);
    const outside = addPeerHost(bench, netns);
    return [name, () => packetCost(outside, container)] as const;
  });
  const samples = interleave(Math.max(5, Math.ceil(bench.rounds / 2)), Object.fromEntries(sides));
  return ["connection", "packet"].flatMap((kind) =>
    [["cni", ""], ["reference", "Other"]].map(([side, suffix]) => {
      const [one, all] = ["first", "full"].map((host) => samples[`${host}${suffix}.${kind}`]!);
      const what = `A ${kind} to a published port at ${most} containers against 1, ${side}`;
      return row(what, "times", all!, ["at 1", one!], { unit: "µs", ...side === "cni" ? { atMost: 1.15 } : {} });
    })
  );
}
