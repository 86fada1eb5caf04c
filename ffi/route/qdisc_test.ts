/** What we send is what tc(8) sends, but for its rate table, which the kernel does not use for Ethernet. */
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { attrs } from "../netlink/attrs.ts";
import { Reader, u32, u64 } from "../netlink/codec.ts";
import { acknowledgement, recordedMessage, recordingSocket, valueOf } from "../../testing/netlink.ts";
import { netnsTest, runInNetns } from "../../testing/netns.ts";
import { ifb } from "./link_kinds.ts";
import * as link from "./link.ts";
import * as qdisc from "./qdisc.ts";
import { IFF_UP, TCA_TBF_BURST, TCA_TBF_RATE64 } from "./uapi.ts";

/** What is sent while `call` runs. */
function sentBy(call: (nl: ReturnType<typeof recordingSocket>) => void): Uint8Array {
  const nl = recordingSocket(acknowledgement(1, 0));
  call(nl);
  return nl.sent[0]!;
}

test("an ingress discipline is added by tc(8)'s bytes", () => {
  expect(sentBy((nl) => qdisc.addIngress(nl, 1)).toHex()).toBe(recordedMessage("qdisc_add_ingress").toHex());
});

const sizes = attrs(() => ({ rate64: [TCA_TBF_RATE64, u64], burst: [TCA_TBF_BURST, u32] }));

for (
  const [name, bucket] of [
    ["qdisc_add_tbf", { rate: 100_000_000n, burst: 1_000_000, limit: 3_500_000 }],
    ["qdisc_add_tbf_large", { rate: 12_500_000_000n, burst: 1500, limit: 500_000 }],
  ] as const
) {
  test(`a token bucket of ${bucket.rate} bytes per second has tc(8)'s values`, () => {
    const ours = valueOf(qdisc.qdiscMessage, sentBy((nl) => qdisc.addTokenBucket(nl, 1, bucket)));
    const theirs = valueOf(qdisc.qdiscMessage, recordedMessage(name));
    expect({ ...ours, options: undefined }).toEqual({ ...theirs, options: undefined });
    expect(qdisc.tokenBucketOf(ours)).toEqual(qdisc.tokenBucketOf(theirs)!);
    const [sent, wanted] = [ours, theirs].map(({ options }) => sizes.read(new Reader(options!)));
    // Where it can be told from the time in which the bucket fills, it is not said.
    expect(sent).toEqual(bucket.burst === 1500 ? wanted! : {});
    expect(wanted!.burst).toBe(bucket.burst);
  });
}

test("a tick is what the kernel says it is", () => {
  expect(parseInt(readFileSync("/proc/net/psched", "utf8").split(" ")[1]!, 16)).toBe(qdisc.TICK_NS);
});

netnsTest("the kernel keeps every token bucket that it is given", ({ host }) => {
  link.add(host.route, { name: "ifb9", flags: IFF_UP, change: IFF_UP, info: ifb({}) });
  const { index } = link.get(host.route, "ifb9");
  for (
    const [rate, burst, limit] of [
      [1n, 1, 1],
      [1n, 4_294_967_294, 4_294_967_295],
      [125_000n, 16_000, 19_125],
      [4_294_967_295n, 1514, 100],
      [4_294_967_296n, 1514, 100],
      [12_500_000_000n, 1514, 4_294_967_295],
      [2n ** 61n - 1n, 4_294_967_294, 4_294_967_295],
    ] as const
  ) {
    qdisc.addTokenBucket(host.route, index, { rate, burst, limit });
    const root = qdisc.findRoot(host.route, index);
    const state = qdisc.tokenBucketOf(root!)!;
    expect({ ...state, buffer: 0 }).toEqual({ rate, limit, buffer: 0 });
    expect(qdisc.matchesBurst(state, { rate, burst, limit })).toBe(true);
    const ticks = burst * 1e9 / 64 / Number(rate);
    if (ticks > 1000) expect(qdisc.matchesBurst(state, { rate, burst: Math.ceil(burst * 1.1) + 1, limit })).toBe(false);
    expect(JSON.parse(runInNetns(host, "tc", "-j", "qdisc", "show", "dev", "ifb9"))[0]).toMatchObject({ kind: "tbf" });
    expect(qdisc.removeRoot(host.route, index)).toBe(true);
    expect(qdisc.removeRoot(host.route, index)).toBe(false);
  }
});

netnsTest("disciplines are found at their places, and a second one at a place is refused", ({ host }) => {
  const bucket = { rate: 125_000n, burst: 16_000, limit: 19_125 };
  const { route } = host;
  expect([qdisc.findRoot(route, 1), qdisc.findIngress(route, 1), qdisc.findRoot(route, 4711)]).toEqual([
    undefined,
    undefined,
    undefined,
  ]);
  qdisc.addIngress(host.route, 1);
  qdisc.addTokenBucket(host.route, 1, bucket);
  expect([qdisc.findRoot(route, 1)?.kind, qdisc.findIngress(route, 1)?.kind]).toEqual(["tbf", "ingress"]);
  expect(JSON.parse(runInNetns(host, "tc", "-j", "qdisc", "show", "dev", "lo"))).toMatchObject([
    { kind: "tbf", handle: "1:", root: true, options: { rate: 125_000, burst: 16_000 } },
    { kind: "ingress", handle: "ffff:" },
  ]);
  expect(() => qdisc.addIngress(host.route, 1)).toThrow("EEXIST");
  expect(() => qdisc.addTokenBucket(host.route, 1, bucket)).toThrow(
    'Cannot add queueing discipline "tbf" to link 1: File exists (EEXIST',
  );
  expect(qdisc.removeIngress(host.route, 1)).toBe(true);
  expect(qdisc.removeIngress(host.route, 1)).toBe(false);
  expect(qdisc.removeIngress(host.route, 4711)).toBe(false);
});
