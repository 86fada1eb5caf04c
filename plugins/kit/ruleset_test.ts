import { expect, test } from "bun:test";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { inNetns, netnsTest } from "../../ffi/testing.ts";
import { parseCidr } from "../../ffi/address.ts";
import { CniError } from "../spec/error.ts";
import { addMasquerade, checkMasquerade } from "./masquerade.ts";
import { requireRuleset } from "./ruleset.ts";

const owner = { network: "web", containerId: "a", ifname: "eth0" };
const addresses = [parseCidr("10.88.0.2/16")];

netnsTest("requireRuleset() tries the rules and changes nothing", ({ host }) => {
  requireRuleset(host.nft);
  expect(inNetns(host, "nft", "list", "ruleset")).toBe("");
  addMasquerade(host.nft, owner, addresses);
  requireRuleset(host.nft);
});

test("requireRuleset() answers with code 50 where nf_tables cannot be used", () => {
  const refusing: Netlink = {
    sequence: 1,
    send() {
      throw new SystemError("send", 1, "send to the kernel");
    },
    receive: () => undefined,
    [Symbol.dispose]: () => {},
  };
  try {
    requireRuleset(refusing);
    expect.unreachable();
  } catch (error) {
    expect(error).toBeInstanceOf(CniError);
    expect((error as CniError).code).toBe(50);
    expect((error as CniError).details).toContain("EPERM");
  }
});

netnsTest("a chain that somebody emptied is noticed, one that somebody added to is not", ({ host }) => {
  addMasquerade(host.nft, owner, addresses);
  inNetns(host, "nft", "add", "rule", "inet", "cni", "postrouting", "counter");
  checkMasquerade(host.nft, owner, addresses);
  inNetns(host, "nft", "flush", "chain", "inet", "cni", "postrouting");
  expect(() => checkMasquerade(host.nft, owner, addresses)).toThrow(
    'Check failed: the ruleset\'s chain "postrouting" has 0 rules, expected 4',
  );
});

netnsTest("a foreign table of the same name is reported, not changed", ({ host }) => {
  inNetns(host, "nft", "add table inet cni");
  expect(() => addMasquerade(host.nft, owner, addresses)).toThrow(/set "masquerade4" of table "cni": No such file/);
  expect(inNetns(host, "nft", "list", "ruleset")).toBe("table inet cni {\n}\n");
});
