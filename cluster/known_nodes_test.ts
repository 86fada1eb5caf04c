import { describe, expect, test } from "bun:test";
import { type Cidr, networkOf, networksOverlap, parseCidr, parseIp } from "../ffi/address.ts";
import { type Conflict, KnownNodes, type NodeChanges } from "./known_nodes.ts";
import type { ClusterNode } from "./node.ts";

/** A node of the given second, with pod ranges. */
function node(uid: string, createdAtS: number, ...podCidrs: string[]): ClusterNode {
  const addresses = [parseIp(`192.0.2.${createdAtS}`)];
  return { uid, name: uid, createdAtMs: createdAtS * 1000, addresses, podCidrs: podCidrs.map(parseCidr) };
}

const OWN = node("own", 1, "10.244.1.0/24", "fd00:1::/64");
const A = node("a", 2, "10.244.2.0/24", "fd00:2::/64");
const B = node("b", 3, "10.244.3.0/24", "fd00:3::/64");

/** Those that know of these nodes already. */
function known(...nodes: readonly ClusterNode[]): KnownNodes {
  const self = new KnownNodes("own");
  self.replace([OWN, ...nodes]);
  return self;
}

const uidsOf = (changes: NodeChanges | "without-own-node"): unknown =>
  changes === "without-own-node" ? changes : [...changes.own ? ["own"] : [], ...[...changes.peers].sort()];

const describeConflicts = (conflicts: readonly Conflict[]): string[] =>
  conflicts.map(({ node, other, cidr }) => `${cidr} of ${node.name} is ${other.name}'s`).sort();

describe("known nodes", () => {
  test("are kept once when they are told again", () => {
    const nodes = known(A);
    expect(nodes.recognize({ ...A })).toBe(A);
    const moved = { ...A, addresses: B.addresses };
    expect(nodes.recognize(moved)).toBe(moved);
    expect(nodes.recognize(B)).toBe(B);
  });

  test("are those of the last list, which tells what has changed", () => {
    const nodes = new KnownNodes("own");
    expect(nodes.own).toBeUndefined();
    expect(uidsOf(nodes.replace([OWN, A]))).toEqual(["own", "a"]);
    expect(nodes.own).toEqual(OWN);
    expect([...nodes.peers()]).toEqual([A]);
    expect(uidsOf(nodes.replace([OWN, A]))).toEqual([]);
    const moved = { ...B, addresses: [parseIp("192.0.2.99")] };
    expect(uidsOf(nodes.replace([OWN, B]))).toEqual(["a", "b"]);
    expect(uidsOf(nodes.replace([moved, OWN]))).toEqual(["b"]);
    expect([...nodes.peers()]).toEqual([moved]);
    expect([...nodes.all()]).toEqual([OWN, moved]);
  });

  test("do not believe a list without the own node", () => {
    const nodes = known(A);
    expect(nodes.replace([A, B])).toBe("without-own-node");
    expect(nodes.replace([])).toBe("without-own-node");
    expect([...nodes.all()]).toEqual([OWN, A]);
  });

  test("follow events, of which some change nothing", () => {
    const nodes = known(A);
    expect(uidsOf(nodes.apply("ADDED", B))).toEqual(["b"]);
    expect(nodes.peer("b")).toEqual(B);
    expect(uidsOf(nodes.apply("MODIFIED", { ...B, createdAtMs: B.createdAtMs }))).toEqual([]);
    expect(uidsOf(nodes.apply("MODIFIED", { ...B, podCidrs: [] }))).toEqual(["b"]);
    expect(uidsOf(nodes.apply("DELETED", B))).toEqual(["b"]);
    expect(uidsOf(nodes.apply("DELETED", B))).toEqual([]);
    expect(nodes.peer("b")).toBeUndefined();
    const moved = { ...OWN, addresses: [parseIp("192.0.2.99")] };
    expect(uidsOf(nodes.apply("MODIFIED", moved))).toEqual(["own"]);
    expect(nodes.own).toEqual(moved);
    expect(nodes.peer("own")).toBeUndefined();
  });

  test("keep the own node when its Node is deleted, until another one is made", () => {
    const nodes = known(A);
    expect(uidsOf(nodes.apply("DELETED", OWN))).toEqual([]);
    expect(nodes.own).toEqual(OWN);
    const again = { ...node("own2", 9, "10.244.9.0/24"), name: "own" };
    expect(nodes.apply("ADDED", again)).toMatchObject({ own: true });
    expect(nodes.own).toEqual(again);
    expect([...nodes.peers()]).toEqual([A]);
    expect([...nodes.all()]).toEqual([A, again]);
    const third = { ...again, uid: "own3" };
    expect(nodes.replace([A, third])).toMatchObject({ own: true });
    expect([...nodes.all()]).toEqual([A, third]);
  });

  test("keep the last addresses of a node that has none for a moment, unless it is made again", () => {
    const nodes = known(A);
    const without = (node: ClusterNode) => ({ ...node, addresses: [] });
    expect(uidsOf(nodes.apply("MODIFIED", without(A)))).toEqual([]);
    expect(nodes.withLostAddresses()).toEqual([A]);
    expect(uidsOf(nodes.replace([without(OWN), { ...without(A), podCidrs: B.podCidrs }]))).toEqual(["a"]);
    expect([nodes.own, nodes.peer("a")]).toEqual([OWN, { ...A, podCidrs: B.podCidrs }]);
    expect(nodes.withLostAddresses().map(({ uid }) => uid).sort()).toEqual(["a", "own"]);
    expect(uidsOf(nodes.replace([OWN, { ...without(A), uid: "a2" }]))).toEqual(["a", "a2"]);
    expect(nodes.peer("a2")?.addresses).toEqual([]);
    expect(nodes.withLostAddresses()).toEqual([]);
    expect(uidsOf(nodes.apply("MODIFIED", { ...A, uid: "a2" }))).toEqual(["a2"]);
    nodes.apply("MODIFIED", { ...without(A), uid: "a2" });
    nodes.apply("DELETED", { ...without(A), uid: "a2" });
    expect(nodes.withLostAddresses()).toEqual([]);
  });

  test("of two nodes with overlapping ranges the older keeps them, in both orders and for each range", () => {
    const younger = node("y", 9, "10.244.0.0/16", "fd00:9::/64");
    for (const order of [[A, younger], [younger, A]]) {
      const nodes = known();
      for (const each of order) nodes.apply("ADDED", each);
      expect(nodes.peer("a")).toEqual(A);
      expect(nodes.peer("y")?.podCidrs).toEqual([parseCidr("fd00:9::/64")]);
      expect(describeConflicts(nodes.conflicts())).toEqual([
        "10.244.0.0/16 of y is a's",
        "10.244.0.0/16 of y is own's",
      ]);
    }
  });

  test("tell that a node gets its range when the older one goes", () => {
    const twin = node("t", 9, "10.244.2.0/24");
    const nodes = known(A, twin);
    expect(nodes.peer("t")?.podCidrs).toEqual([]);
    expect(uidsOf(nodes.apply("DELETED", A))).toEqual(["a", "t"]);
    expect(nodes.peer("t")).toEqual(twin);
    expect(nodes.conflicts()).toEqual([]);
    expect(uidsOf(nodes.apply("ADDED", A))).toEqual(["a", "t"]);
    expect(nodes.peer("t")?.podCidrs).toEqual([]);
    expect(uidsOf(nodes.apply("MODIFIED", { ...A, podCidrs: B.podCidrs }))).toEqual(["a", "t"]);
    expect(nodes.peer("t")).toEqual(twin);
  });

  test("made in the same second are ordered by their UIDs; one that contains many loses only its own", () => {
    const [first, second] = [node("p", 5, "10.9.0.0/24"), node("q", 5, "10.9.0.0/24")];
    const nodes = known(second, first);
    expect(nodes.peer("p")).toEqual(first);
    expect(nodes.peer("q")?.podCidrs).toEqual([]);
    const wide = node("w", 6, "10.0.0.0/8", "fd00::/16");
    expect(uidsOf(nodes.apply("ADDED", wide))).toEqual(["own", "p", "q", "w"]);
    expect(nodes.peer("w")?.podCidrs).toEqual([]);
    expect(nodes.peer("p")).toEqual(first);
  });

  test("agree with a comparison of all with all, after each of many random changes", () => {
    const random = newRandom(7);
    const nodes = known();
    const model = new Map([[OWN.uid, OWN]]);
    for (let step = 0; step < 400; step++) {
      const index = 2 + random(30);
      const cidrs = Array.from({ length: random(3) }, () => `10.${random(4)}.${random(4) * 64}.0/${16 + random(9)}`);
      const changed = {
        ...node(`n${index}`, index, ...cidrs.map(networkText)),
        addresses: [parseIp(`192.0.2.${random(3)}`)],
      };
      const before = expectedPeers(model);
      const isDeleted = random(4) === 0;
      if (isDeleted) model.delete(changed.uid);
      else model.set(changed.uid, changed);
      const changes = nodes.apply(isDeleted ? "DELETED" : "MODIFIED", changed);
      const after = expectedPeers(model);
      expect([...nodes.peers()].map((peer) => [peer.uid, peer.podCidrs.join()]).sort()).toEqual([...after].sort());
      const differing = [...new Set([...before.keys(), ...after.keys()])].filter((uid) =>
        before.get(uid) !== after.get(uid)
      );
      expect(differing.filter((uid) => !changes.peers.has(uid))).toEqual([]);
    }
  });
});

const networkText = (text: string): string => networkOf(parseCidr(text));

/** What each peer should have, by its UID. */
function expectedPeers(model: ReadonlyMap<string, ClusterNode>): Map<string, string> {
  const all = [...model.values()];
  const isFree = (own: ClusterNode, cidr: Cidr) =>
    !all.some((other) =>
      other !== own &&
      (other.createdAtMs < own.createdAtMs || other.createdAtMs === own.createdAtMs && other.uid < own.uid) &&
      other.podCidrs.some((otherCidr) => networksOverlap(cidr, otherCidr))
    );
  return new Map(
    all.filter(({ uid }) => uid !== "own").map((
      own,
    ) => [own.uid, own.podCidrs.filter((cidr) => isFree(own, cidr)).join()]),
  );
}

/** The same numbers in each run. */
function newRandom(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return (state >>> 8) % below;
  };
}
