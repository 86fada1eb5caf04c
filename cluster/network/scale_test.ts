/** 5,000 nodes of both families: half of them are on the link, half by the tunnel. */
import { expect, test } from "bun:test";
import { parseCidr, parseIp } from "../../ffi/address.ts";
import { newNetns, runShellInNetns, WITHOUT_DAD } from "../../testing/netns.ts";
import type { ClusterNode } from "../node.ts";
import { ClusterNetwork } from "./cluster_network.ts";
import { DEFAULT_CLUSTER_SETTINGS } from "./settings.ts";

const NODES = 5000;

const hex = (value: number) => value.toString(16);

function nodeOf(i: number): ClusterNode {
  const [high, low] = [i >> 8, i & 255];
  const net = i % 2 ? "10.0" : "10.16";
  return {
    uid: `uid-${i}`,
    name: `node-${i}`,
    createdAtMs: i,
    addresses: [parseIp(`${net}.${high}.${low}`), parseIp(`2001:db8:${i % 2}::${hex(i)}`)],
    podCidrs: [parseCidr(`10.${32 + (i >> 8)}.${low}.0/24`), parseCidr(`fd00:0:0:${hex(i)}::/64`)],
  };
}

const OWN = { ...nodeOf(1), uid: "own", name: "own" };

function median(times: number[]): number {
  return times.sort((a, b) => a - b)[times.length >> 1]!;
}

/** Of fifty in turn, when other programs had the least to do: with a busy machine, the processor's caches are slower. */
const quietMedian = (ms: readonly number[]): number =>
  Math.min(...Array.from({ length: ms.length / 50 }, (_, i) => median(ms.slice(50 * i, 50 * (i + 1)))));

test("5,000 nodes take at most 5 s of the processor to get into the kernel, and one that changes 2 ms", () => {
  using netns = newNetns();
  runShellInNetns(
    netns,
    WITHOUT_DAD,
    "ip link set lo up; ip link add eth0 type veth peer name far; ip link set far up; ip link set eth0 up",
    "ip addr add 10.0.0.1/16 dev eth0; ip route add default via 10.0.255.254",
    "ip addr add 2001:db8:1::1/64 dev eth0 nodad; ip route add default via 2001:db8:1::ffff",
  );
  const peers = Array.from({ length: NODES - 1 }, (_, i) => nodeOf(i + 2));
  const timed = (call: () => void): number => {
    const before = process.cpuUsage();
    netns.run(() => call() as never);
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1000;
  };
  using network = netns.run<ClusterNetwork>(() =>
    new ClusterNetwork({ settings: DEFAULT_CLUSTER_SETTINGS, log: () => {} })
  );
  const times: Record<string, number> = {};
  times["all into the kernel"] = timed(() => network.replace(OWN, peers, []));
  expect(network.problems()).toEqual([]);
  expect(runShellInNetns(netns, "ip route show proto 67 | wc -l; ip -6 route show proto 67 | wc -l")).toBe(
    // One more for this node's own range.
    `${NODES}\n${NODES}\n`,
  );
  times["first look"] = timed(() => network.look());
  times["second look"] = timed(() => network.look());
  times["the same nodes again"] = timed(() => network.replace(OWN, peers, []));
  const changed = peers.slice(0, 400).map((peer) => ({
    ...peer,
    addresses: [nodeOf(5500 + peer.createdAtMs).addresses[0]!, peer.addresses[1]!],
  }));
  const updates: Readonly<Record<string, (i: number) => [uid: string, peer: ClusterNode | undefined]>> = {
    "one goes": (i) => [peers[i]!.uid, undefined],
    "one comes": (i) => [peers[i]!.uid, peers[i]],
    "one changes its address": (i) => [peers[i]!.uid, changed[i]],
  };
  const each = Object.fromEntries(Object.keys(updates).map((name) => [name, [] as number[]]));
  // In turn: others may have something to do for seconds.
  for (let first = 0; first < changed.length; first += 50) {
    for (const [name, update] of Object.entries(updates)) {
      for (let i = first; i < first + 50; i++) each[name]!.push(timed(() => network.update(new Map([update(i)]))));
    }
  }
  for (const [name, ms] of Object.entries(each)) times[name] = quietMedian(ms);
  times["one is the same"] = quietMedian(
    peers.slice(400, 600).map((peer) => timed(() => network.update(new Map([[peer.uid, peer]])))),
  );
  times["fifty of them made again"] = timed(() => {
    for (const peer of peers.slice(0, 50)) {
      network.update(new Map([[peer.uid, undefined]]));
      network.update(new Map([[`${peer.uid}-again`, { ...peer, uid: `${peer.uid}-again` }]]));
    }
  });
  console.log(Object.fromEntries(Object.entries(times).map(([name, ms]) => [name, `${ms.toFixed(2)} ms`])));
  expect(times["all into the kernel"]).toBeLessThan(5000);
  for (const name of ["one goes", "one comes", "one changes its address"]) expect(times[name]).toBeLessThan(2);
}, 120_000);
