import { expect } from "bun:test";
import { getGenerationId } from "../../../ffi/nft/objects.ts";
import { ipBytes, ipOf, parseCidr } from "../../../ffi/address.ts";
import { sendCountingSocket } from "../../../testing/netlink.ts";
import { netnsTest, runShellInNetns } from "../../../testing/netns.ts";
import { inetTable } from "./inet_table.ts";
import { addMasquerade, checkMasquerade, removeMasquerade } from "../veth/masquerade.ts";
import { shareReads } from "../protocol/shared_reads.ts";
import { takeSnapshot } from "./snapshot.ts";

const OWNER = { network: "web", containerId: "a", ifname: "eth0" };
const addresses = Array.from({ length: 9 }, (_, number) => parseCidr(`10.88.0.${number + 2}/16`));
const elementKeys = addresses.map((address) => ({ set: "masquerade4", key: ipBytes(ipOf(address)) }));

netnsTest(
  "takeSnapshot() asks for nothing that shareReads() shares but the ruleset's number, before each attachment",
  ({ host }) => {
    addMasquerade(host.nft, OWNER, addresses);
    using nl = sendCountingSocket(host.nft);
    const find = () => elementKeys.filter((key) => takeSnapshot(nl, inetTable, [key], []).element(key)).length;
    expect(find()).toBe(9);
    expect(nl.sent).toBe(9);
    using shared = shareReads(nl, getGenerationId);
    expect(find()).toBe(9);
    // The number, the number again with the first element, and the set.
    expect(nl.sent).toBe(9 + 3);
    shared.refresh();
    expect(find()).toBe(9);
    expect(nl.sent).toBe(9 + 4);
  },
);

netnsTest("takeSnapshot() sees what has changed since the attachment before", ({ host }) => {
  const [first, second] = addresses.map((address) => [address]);
  addMasquerade(host.nft, OWNER, first!);
  using shared = shareReads(host.nft, getGenerationId);
  checkMasquerade(host.nft, OWNER, first!);
  expect(() => checkMasquerade(host.nft, OWNER, second!)).toThrow("masquerading of 10.88.0.3 is missing");
  addMasquerade(host.nft, OWNER, second!);
  checkMasquerade(host.nft, OWNER, second!);
  runShellInNetns(host, "nft flush map inet cni masquerade4");
  shared.refresh();
  expect(() => checkMasquerade(host.nft, OWNER, first!)).toThrow("masquerading of 10.88.0.2 is missing");
});

netnsTest("takeSnapshot() sees what the same command has removed", ({ host }) => {
  const [address] = addresses;
  addMasquerade(host.nft, OWNER, [address!]);
  using _shared = shareReads(host.nft, getGenerationId);
  checkMasquerade(host.nft, OWNER, [address!]);
  removeMasquerade(host.nft, OWNER);
  expect(() => checkMasquerade(host.nft, OWNER, [address!])).toThrow("masquerading of 10.88.0.2 is missing");
});

netnsTest("elements come into a table that was missing when reads began to be shared", ({ host }) => {
  using _shared = shareReads(host.nft, getGenerationId);
  expect(takeSnapshot(host.nft, inetTable, elementKeys, []).element(elementKeys[0]!)).toBeUndefined();
  addMasquerade(host.nft, OWNER, addresses);
  checkMasquerade(host.nft, OWNER, addresses);
});
