import { expect, test } from "bun:test";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import { countingNetns } from "../../../testing/netlink_counts.ts";
import { netnsTest, runInNetns } from "../../../testing/netns.ts";
import { parseCidr, parseMac } from "../../../ffi/address.ts";
import { CniError } from "../../../spec/error.ts";
import { addMasquerade, checkMasquerade } from "../veth/masquerade.ts";
import { bridgeTable } from "./bridge_table.ts";
import { inetTable } from "./inet_table.ts";
import { requireTable } from "./table.ts";
import { addSpoofCheck } from "../veth/spoof_check.ts";

const owner = { network: "web", containerId: "a", ifname: "eth0" };
const addresses = [parseCidr("10.88.0.2/16")];

netnsTest("requireTable() tries the rules and changes nothing", ({ host }) => {
  requireTable(host.nft, inetTable);
  expect(runInNetns(host, "nft", "list", "ruleset")).toBe("");
  addMasquerade(host.nft, owner, addresses);
  requireTable(host.nft, inetTable);
});

netnsTest("what the kernel took is not tried again: each try waits for RCU", ({ host }) => {
  const counts = { sends: 0, messages: 0, dumps: 0, received: 0 };
  const { nft } = countingNetns(host, counts);
  const countSends = (run: () => void) => {
    const before = counts.sends;
    run();
    return counts.sends - before;
  };
  const lookup = 1;
  expect(countSends(() => requireTable(nft, inetTable))).toBeGreaterThan(lookup);
  expect(countSends(() => requireTable(nft, inetTable))).toBe(lookup);
  expect(countSends(() => requireTable(nft, bridgeTable))).toBeGreaterThan(lookup);
});

test("requireTable() answers with code 50 where nf_tables cannot be used", () => {
  const refusing: Netlink = {
    sequence: 1,
    send() {
      throw new SystemError("send", 1, "send to the kernel");
    },
    receive: () => undefined,
    [Symbol.dispose]: () => {},
  };
  try {
    requireTable(refusing, inetTable);
    expect.unreachable();
  } catch (error) {
    expect(error).toBeInstanceOf(CniError);
    expect((error as CniError).code).toBe(50);
    expect((error as CniError).details).toContain("EPERM");
  }
});

netnsTest("a chain that somebody emptied is noticed, one that somebody added to is not", ({ host }) => {
  addMasquerade(host.nft, owner, addresses);
  runInNetns(host, "nft", "add", "rule", "inet", "cni", "postrouting", "counter");
  checkMasquerade(host.nft, owner, addresses);
  runInNetns(host, "nft", "flush", "chain", "inet", "cni", "postrouting");
  expect(() => checkMasquerade(host.nft, owner, addresses)).toThrow(
    'Check failed: the ruleset\'s chain "postrouting" has 0 rules, expected 6',
  );
});

netnsTest("a foreign table of the same name is reported, not changed", ({ host }) => {
  runInNetns(host, "nft", "add table inet cni");
  expect(() => addMasquerade(host.nft, owner, addresses)).toThrow(
    'Cannot repair table "inet cni": it was not made by this program',
  );
  expect(() => requireTable(host.nft, inetTable)).toThrow(
    'Cannot use the ruleset: its chain "before_filter" has 0 rules, expected 5, and table "inet cni" was not made',
  );
  expect(runInNetns(host, "nft", "list", "ruleset")).toBe("table inet cni {\n}\n");
});

netnsTest("STATUS accepts what an ADD repairs", ({ host }) => {
  requireTable(host.nft, bridgeTable);
  expect(runInNetns(host, "nft", "list", "ruleset")).toBe("");
  addMasquerade(host.nft, owner, addresses);
  addSpoofCheck(host.nft, owner, "veth1", parseMac("0a:00:00:00:00:01"));
  runInNetns(host, "nft", "flush table inet cni; flush table bridge cni");
  const before = runInNetns(host, "nft", "list", "ruleset");
  requireTable(host.nft, inetTable);
  requireTable(host.nft, bridgeTable);
  expect(runInNetns(host, "nft", "list", "ruleset")).toBe(before);
});

netnsTest("nft(8) shows what every set, map and chain is for", ({ host }) => {
  addMasquerade(host.nft, owner, addresses);
  addSpoofCheck(host.nft, owner, "veth1", parseMac("0a:00:00:00:00:01"));
  const listing = runInNetns(host, "nft", "list", "ruleset");
  const all = [...listing.matchAll(/^(?:table|\t(?:set|map|chain)) (.*) \{\n([^]*?)\n\t?\}/gm)];
  expect(all.length).toBeGreaterThan(25);
  // Its rules say what a shared chain is for.
  const mute = all.filter(([, name, body]) => !name!.startsWith("masquerade-") && !/^\t+comment "[A-Z]/m.test(body!));
  expect(mute.map(([, name]) => name)).toEqual([]);
  runInNetns(host, "sh", "-c", "nft list ruleset >/tmp/$$ && nft flush ruleset && nft -f /tmp/$$; rm /tmp/$$");
  expect(runInNetns(host, "nft", "list", "ruleset")).toBe(listing);
});
