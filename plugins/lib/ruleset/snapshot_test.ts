import { expect } from "bun:test";
import { ipBytes, ipOf, parseCidr } from "../../../ffi/address.ts";
import { sendCountingSocket } from "../../../testing/netlink.ts";
import { netnsTest } from "../../../testing/netns.ts";
import { inetTable } from "./inet_table.ts";
import { addMasquerade, checkMasquerade } from "./masquerade.ts";
import { shareSnapshots, takeSnapshot } from "./snapshot.ts";

const OWNER = { network: "web", containerId: "a", ifname: "eth0" };
const addresses = Array.from({ length: 9 }, (_, number) => parseCidr(`10.88.0.${number + 2}/16`));
const elementKeys = addresses.map((address) => ({ set: "masquerade4", key: ipBytes(ipOf(address)) }));

netnsTest("takeSnapshot() asks for the ruleset's number alone where shareSnapshots() has read the sets", ({ host }) => {
  addMasquerade(host.nft, OWNER, addresses);
  using nl = sendCountingSocket(host.nft);
  const find = () => elementKeys.filter((key) => takeSnapshot(nl, inetTable, [key], []).element(key)).length;
  expect(find()).toBe(9);
  expect(nl.sent).toBe(9);
  using _ = shareSnapshots(nl);
  expect(find()).toBe(9);
  // The number and the set for the first, the number for each of the others.
  expect(nl.sent).toBe(9 + 2 + 8);
});

netnsTest("takeSnapshot() sees what has changed since shareSnapshots() read the sets", ({ host }) => {
  const [first, second] = addresses.map((address) => [address]);
  addMasquerade(host.nft, OWNER, first!);
  using _ = shareSnapshots(host.nft);
  checkMasquerade(host.nft, OWNER, first!);
  expect(() => checkMasquerade(host.nft, OWNER, second!)).toThrow("masquerading of 10.88.0.3 is missing");
  addMasquerade(host.nft, OWNER, second!);
  checkMasquerade(host.nft, OWNER, second!);
});
