/** DEL finds by owner what an attachment has, whatever it is told, and reads nothing else. */
import { expect } from "bun:test";
import { type Cidr, parseCidr } from "../../../ffi/address.ts";
import { listElements } from "../../../ffi/nft/objects.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { newFixedIpam } from "../../../testing/fixed_ipam.ts";
import { countingNetns } from "../../../testing/netlink_counts.ts";
import { netnsTest, runInNetns } from "../../../testing/netns.ts";
import { nftListRuleset } from "../../../testing/ruleset.ts";
import { sandboxTest, withPrevResult } from "../../../testing/sandbox.ts";
import bridge from "../../bridge/plugin.ts";
import firewall from "../../firewall/plugin.ts";
import { inetTable } from "./inet_table.ts";
import { addMasquerade, gcMasquerade, removeMasquerade } from "../veth/masquerade.ts";
import { RECORD_SET } from "./owner_records.ts";

const ownerOf = (containerId: string) => ({ network: "web", containerId, ifname: "eth0" });
const [A, B] = [ownerOf("a"), ownerOf("b")];
const addressesOf = (n: number): Cidr[] => [
  parseCidr(`10.88.${n >> 8}.${n & 0xff}/16`),
  parseCidr(`fd88::${n.toString(16)}/64`),
];

/** The comments of all elements, each once. */
const owners = (host: Netns): string[] =>
  [...new Set([...nftListRuleset(host).matchAll(/comment "(web [^"]*)"/g)].map(([, text]) => text!))].sort();

const { fixed } = newFixedIpam();
const IPS = [{ address: parseCidr("10.1.2.2/24") }, { address: parseCidr("fd12::2/64") }];
const IPAM = { type: "fixed", result: { ips: IPS } };
const BRIDGE = { isGateway: true, ipMasq: true, macspoofchk: true, ipam: IPAM };
const ISOLATED = { ingressPolicy: "isolated" };

for (
  const [what, change] of [
    ["other addresses", { ips: [{ address: parseCidr("10.1.2.3/24"), interface: 2 }] }],
    ["fewer addresses", { ips: [{ address: IPS[0]!.address, interface: 2 }] }],
    ["no addresses", { ips: [] }],
    ["other interfaces", { interfaces: [{ name: "cni0" }, { name: "vethother" }, { name: "eth0", sandbox: "/x" }] }],
    ["no interfaces", { interfaces: [] }],
  ] as const
) {
  sandboxTest(`DEL with a result that names ${what} leaves nothing`, [fixed], ({ call, host }) => {
    const result = call(bridge, "ADD", BRIDGE);
    call(firewall, "ADD", withPrevResult(ISOLATED, result));
    for (const found of ["ingress6", "isolated_bridges", "isolated", "masquerade4"]) {
      expect(nftListRuleset(host)).toMatch(new RegExp(`(map|set) ${found} \\{[^}]*elements`));
    }
    const told = { ...result, ...change };
    call(firewall, "DEL", withPrevResult(ISOLATED, told));
    call(bridge, "DEL", withPrevResult(BRIDGE, told));
    expect(nftListRuleset(host)).not.toContain("elements");
    expect(nftListRuleset(host)).not.toMatch(/chain \S*-/);
  });
}

netnsTest("a record is removed with what it leads to, by DEL and by GC", ({ host }) => {
  for (const owner of [A, B]) addMasquerade(host.nft, owner, addressesOf(2 + Number(owner === B)));
  expect(owners(host)).toEqual(["web a eth0", "web a eth0 #masquerade", "web b eth0", "web b eth0 #masquerade"]);
  removeMasquerade(host.nft, A);
  expect(owners(host)).toEqual(["web b eth0", "web b eth0 #masquerade"]);
  gcMasquerade(host.nft, "web", [], () => {});
  expect(owners(host)).toEqual([]);
});

netnsTest("a record leads to what several calls added", ({ host }) => {
  addMasquerade(host.nft, A, addressesOf(2));
  addMasquerade(host.nft, A, addressesOf(3));
  addMasquerade(host.nft, A, addressesOf(2));
  removeMasquerade(host.nft, A);
  expect(owners(host)).toEqual([]);
});

netnsTest("of many addresses a record names the sets alone", ({ host }) => {
  addMasquerade(host.nft, A, Array.from({ length: 200 }, (_, i) => addressesOf(2 + i)).flat());
  addMasquerade(host.nft, B, addressesOf(500));
  expect(listElements(host.nft, inetTable, RECORD_SET)).toHaveLength(2);
  removeMasquerade(host.nft, A);
  expect(owners(host)).toEqual(["web b eth0", "web b eth0 #masquerade"]);
});

netnsTest("a record that does not fit into one element is several", ({ host }) => {
  addMasquerade(host.nft, A, Array.from({ length: 60 }, (_, i) => addressesOf(2 + i)).flat());
  expect(listElements(host.nft, inetTable, RECORD_SET).length).toBeGreaterThan(4);
  removeMasquerade(host.nft, A);
  expect(owners(host)).toEqual([]);
});

netnsTest("nft(8) loads a saved ruleset without what records lead to, and DEL searches", ({ host }) => {
  addMasquerade(host.nft, A, Array.from({ length: 60 }, (_, i) => addressesOf(2 + i)).flat());
  addMasquerade(host.nft, B, addressesOf(500));
  const saved = nftListRuleset(host);
  runInNetns(host, "nft", "flush", "ruleset");
  host.run(() => void Bun.spawnSync(["nft", "-f", "-"], { stdin: Buffer.from(saved) }));
  expect(nftListRuleset(host)).toBe(saved);
  removeMasquerade(host.nft, A);
  expect(owners(host)).toEqual(["web b eth0", "web b eth0 #masquerade"]);
});

netnsTest("a table without records, as an earlier release made it, gets them with the next ADD", ({ host }) => {
  const forgetRecords = () => runInNetns(host, "nft", "delete", "set", "inet", "cni", RECORD_SET);
  addMasquerade(host.nft, A, addressesOf(2));
  forgetRecords();
  removeMasquerade(host.nft, A);
  expect(owners(host)).toEqual([]);
  addMasquerade(host.nft, A, addressesOf(2));
  const table = nftListRuleset(host);
  forgetRecords();
  addMasquerade(host.nft, B, addressesOf(3));
  removeMasquerade(host.nft, B);
  const sorted = (text: string) => text.split("\n").sort();
  expect(sorted(nftListRuleset(host))).toEqual(sorted(table));
  removeMasquerade(host.nft, A);
  expect(owners(host)).toEqual([]);
});

netnsTest("DEL asks the kernel for the same beside 20 containers and beside 300, told or not", ({ host }) => {
  const costs = () => {
    addMasquerade(host.nft, A, addressesOf(2));
    const counts = { sends: 0, messages: 0, dumps: 0, received: 0 };
    const { nft } = countingNetns(host, counts);
    removeMasquerade(nft, A);
    removeMasquerade(nft, A);
    return counts;
  };
  const addOthers = (from: number, to: number) => {
    for (let n = from; n < to; n++) addMasquerade(host.nft, ownerOf(`c${n}`), addressesOf(n));
  };
  addOthers(10, 30);
  const beside20 = costs();
  addOthers(30, 310);
  expect(costs()).toEqual(beside20);
});
