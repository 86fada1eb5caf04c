import { expect, spyOn, test } from "bun:test";
import { type Ip, parseIp } from "../ffi/address.ts";
import * as conntrack from "../ffi/conntrack/conntrack.ts";
import { bootTimeMs } from "../ffi/sys/boot_clock.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { newNetns } from "../testing/netns.ts";
import { listTrackedFlows, trackFlows } from "../testing/tracked_flows.ts";
import { FormerFlows } from "./former_flows.ts";
import { FreeAddresses } from "./free_addresses.ts";

/** More than procfs is read for. */
const FLOWS = 400;
const [A, B, C, OTHER] = ["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4"].map(parseIp) as [Ip, Ip, Ip, Ip];

function newFormerFlows(host: Netns, log: string[] = []) {
  const write = (message: string) => void log.push(message);
  return new FormerFlows(host, new FreeAddresses(host, { log: write }), write);
}

test("the flows of all who ask at once are deleted by one walk, and no others", async () => {
  using host = newNetns();
  using walks = spyOn(conntrack, "deleteFlowsInPieces");
  trackFlows(host, [A, B, C, OTHER], FLOWS);
  const sources = () => [...new Set(listTrackedFlows(host).map(({ source }) => source))].sort();
  expect(sources()).toEqual([A, B, C, OTHER]);
  const log: string[] = [];
  using former = newFormerFlows(host, log);
  const untilMs = bootTimeMs() + 60_000;
  const asked = [former.delete([A], untilMs), former.delete([B], untilMs)];
  await asked[0];
  expect(sources()).toEqual([C, OTHER]);
  asked.push(former.delete([C], untilMs));
  expect(await Promise.all(asked)).toEqual([true, true, true]);
  expect([sources(), log, walks.mock.calls.length]).toEqual([[OTHER], [], 2]);
});

test("who has stopped waiting loses no flows, which may be those of the next pod", async () => {
  using host = newNetns();
  trackFlows(host, [A, B], FLOWS);
  using former = newFormerFlows(host);
  const asked = [former.delete([A], bootTimeMs() - 1), former.delete([B], bootTimeMs() + 60_000)];
  expect(await Promise.all(asked)).toEqual([false, true]);
  expect(new Set(listTrackedFlows(host).map(({ source }) => source))).toEqual(new Set([A]));
  // One of a pod's two addresses is too little.
  trackFlows(host, [B, C], FLOWS);
  const both = former.delete([B, C], bootTimeMs() + 60_000);
  const late = former.delete([C], bootTimeMs() - 1);
  expect(await Promise.all([both, late])).toEqual([false, false]);
  expect(new Set(listTrackedFlows(host).map(({ source }) => source))).toEqual(new Set([A, C]));
});

test("a walk that fails does not keep the next one", async () => {
  using host = newNetns();
  trackFlows(host, [A], FLOWS);
  const log: string[] = [];
  using former = newFormerFlows(host, log);
  {
    using walk = spyOn(conntrack, "deleteFlowsInPieces");
    walk.mockImplementationOnce(() => {
      throw new RangeError("The answer is nonsense");
    });
    expect(former.delete([A], bootTimeMs() + 60_000)).rejects.toThrow("nonsense");
    await Bun.sleep(0);
  }
  expect([await former.delete([A], bootTimeMs() + 60_000), listTrackedFlows(host), log]).toEqual([true, [], []]);
});

/** Stands for a long table. @param onEnd told of the addresses that are still awaited then */
function walkFor(ms: number, onEnd: (ips: readonly Ip[]) => void = () => {}) {
  return function* (_: unknown, ips: ReadonlySet<Ip>): Generator<void> {
    const end = performance.now() + ms;
    while (performance.now() < end) {
      Bun.sleepSync(1);
      yield;
    }
    onEnd([...ips]);
  };
}

test("who waits for less than others of the same walk is answered in time", async () => {
  using host = newNetns();
  trackFlows(host, [A, B], FLOWS);
  using walk = spyOn(conntrack, "deleteFlowsInPieces");
  walk.mockImplementationOnce(walkFor(3000));
  using former = newFormerFlows(host);
  const started = performance.now();
  const patient = former.delete([B], bootTimeMs() + 60_000);
  expect(await former.delete([A], bootTimeMs() + 100)).toBe(false);
  expect(performance.now() - started).toBeLessThan(2000);
  expect(await patient).toBe(true);
});

test("the next pod with an address ends what was asked for the former one", async () => {
  using host = newNetns();
  trackFlows(host, [A, B], FLOWS);
  using walk = spyOn(conntrack, "deleteFlowsInPieces");
  let left: readonly Ip[] = [];
  walk.mockImplementationOnce(walkFor(1000, (ips) => left = ips));
  using former = newFormerFlows(host);
  const first = former.delete([A, B], bootTimeMs() + 60_000);
  await Bun.sleep(50);
  expect(await former.delete([A], bootTimeMs() + 100)).toBe(false);
  expect([await first, left]).toEqual([false, [B]]);
});
