/** The check of hardware addresses as the distribution's reference plugin sets it up. */
import { expect } from "bun:test";
import type { Netns } from "../../../ffi/netns/netns.ts";
import * as link from "../../../ffi/route/link.ts";
import { runInNetns } from "../../../testing/netns.ts";
import { gcReferenceSpoofChecks, removeReferenceSpoofCheck } from "./spoof_check.ts";
import { newSandbox, type Sandbox } from "../../../testing/sandbox.ts";
import { callReference, referenceTest } from "../../../testing/reference.ts";

const listing = (host: Netns): string => runInNetns(host, "nft", "list", "ruleset");
const ownerOf = (containerId: string) => ({ network: "test", containerId, ifname: "eth0" });

function attach(sandbox: Sandbox, containerId: string): void {
  const netns = sandbox.newContainer();
  const config = { bridge: "br0", macspoofchk: true };
  expect(callReference(sandbox, "bridge", "ADD", config, { containerId, netns })).not.toBe("refused");
}

referenceTest("bridge")("DEL removes one container's check, and with the last the table", () => {
  using sandbox = newSandbox([]);
  const { host } = sandbox;
  attach(sandbox, "a");
  const one = listing(host);
  attach(sandbox, "b");
  expect(listing(host)).toContain("cni-br-iface-b-eth0-mac");
  removeReferenceSpoofCheck(host.nft, ownerOf("b"));
  removeReferenceSpoofCheck(host.nft, ownerOf("b"));
  expect(listing(host)).toBe(one);
  removeReferenceSpoofCheck(host.nft, ownerOf("a"));
  expect(listing(host)).toBe("");
});

referenceTest("bridge")("GC removes the checks of ports that are gone; a table that others use stays", () => {
  using sandbox = newSandbox([]);
  const { host } = sandbox;
  attach(sandbox, "a");
  const one = listing(host);
  const ports = () => link.list(host.route).filter(({ info }) => info?.kind === "veth").map(({ name = "" }) => name);
  const [kept] = ports();
  attach(sandbox, "b");
  runInNetns(host, "ip", "link", "del", ports().find((name) => name !== kept)!);
  const collect = () => gcReferenceSpoofChecks(host.nft, (name) => link.find(host.route, name) !== undefined);
  collect();
  expect(listing(host)).toBe(one);
  runInNetns(host, "nft", "add", "chain", "bridge", "nat", "mine");
  runInNetns(host, "ip", "link", "del", kept!);
  collect();
  expect(listing(host)).toContain("chain mine");
  expect(listing(host)).not.toContain("cni-br");
});
