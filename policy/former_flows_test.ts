import { expect, test } from "bun:test";
import { type Ip, parseIp } from "../ffi/address.ts";
import { newNetns } from "../testing/netns.ts";
import { listTrackedFlows, trackFlows } from "../testing/tracked_flows.ts";
import { FormerFlows } from "./former_flows.ts";

/** More than procfs is read for. */
const FLOWS = 400;
const [A, B, C, OTHER] = ["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4"].map(parseIp) as [Ip, Ip, Ip, Ip];

test("the flows of all who ask at once are deleted, and no others", async () => {
  using host = newNetns();
  trackFlows(host, [A, B, C, OTHER], FLOWS);
  const sources = () => [...new Set(listTrackedFlows(host).map(({ source }) => source))].sort();
  expect(sources()).toEqual([A, B, C, OTHER]);
  const log: string[] = [];
  using former = new FormerFlows(host, (message) => void log.push(message));
  const asked = [former.delete([A]), former.delete([B])];
  await asked[0];
  expect(sources()).toEqual([C, OTHER]);
  // It asks while the others' walk is over.
  asked.push(former.delete([C]));
  expect(await Promise.all(asked)).toEqual([true, true, true]);
  expect([sources(), log]).toEqual([[OTHER], []]);
});
