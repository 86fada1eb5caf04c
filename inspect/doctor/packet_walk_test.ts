/** The walk agrees with what the rules say, in nft's words; traffic would take a connection for each. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { parseIp } from "../../ffi/address.ts";
import { createNetns, type Netns } from "../../ffi/netns/netns.ts";
import * as nft from "../../ffi/nft/objects.ts";
import { NFPROTO_INET, NFPROTO_IPV4 } from "../../ffi/nft/uapi.ts";
import { runShellInNetns } from "../../testing/netns.ts";
import { judgeIptablesMatch } from "./iptables_matches.ts";
import { findDrop, RulesetReader } from "./packet_walk.ts";
import type { WalkedPacket } from "./walked_packet.ts";

const OUT: WalkedPacket = {
  ...{ iifname: "cni0", oifname: "eth0", source: parseIp("10.1.0.2"), destination: parseIp("198.41.0.4") },
  ...{ mark: 0, protocol: 6, destinationPort: 443, isDnat: false },
};
const OUT6 = { ...OUT, source: parseIp("fd01::2"), destination: parseIp("2001:db8::1") };
const PUBLISHED: WalkedPacket = {
  ...{ ...OUT, iifname: "eth0", oifname: "cni0", source: OUT.destination, destination: OUT.source },
  ...{ destinationPort: 80, isDnat: true },
};

let netns: Netns;
beforeAll(() => {
  netns = createNetns();
});
afterAll(() => netns[Symbol.dispose]());

/** `rule`, `policy` or nothing for a packet that is accepted; a question mark if that is not certain. */
function walk(family: number, table: string, name: string, packet: WalkedPacket): string {
  const chain = nft.findChain(netns.nft, { family, table }, name)!;
  const place = findDrop(new RulesetReader(netns.nft), { family, table }, chain, packet);
  return place ? `${place.chain} ${place.rule?.number ?? "policy"}${place.isCertain ? "" : "?"}` : "";
}

test.each<[rules: string, packet: WalkedPacket, place: string]>([
  ["accept", OUT, ""],
  ["ip saddr 10.1.0.0/24 accept", OUT, ""],
  ["ip saddr 10.1.1.0/24 accept", OUT, "c policy"],
  ["ip saddr 10.1.0.0/24 accept", OUT6, "c policy"],
  ["ip6 saddr fd01::/64 drop; accept", OUT6, "c 1"],
  ["ip6 saddr fd01::/64 drop; accept", OUT, ""],
  ['iifname "cni*" oifname != "cni*" accept', OUT, ""],
  ['iifname { "docker0", "cni0" } accept', OUT, ""],
  ['iifname { "docker0", "virbr0" } accept', OUT, "c policy"],
  ["ip daddr { 10.0.0.0/8, 192.0.2.1-192.0.2.9 } accept", OUT, "c policy"],
  ["ip saddr { 10.0.0.0/8, 192.0.2.1-192.0.2.9 } accept", OUT, ""],
  ["ip saddr != { 192.0.2.0/24 } accept", OUT, ""],
  ["ip saddr . tcp dport { 10.1.0.2 . 443, 10.1.0.3 . 80 } accept", OUT, ""],
  ["ip saddr . tcp dport { 10.1.0.2 . 80, 10.1.0.3 . 443 } accept", OUT, "c policy"],
  ["ip saddr . tcp dport { 10.1.0.0/24 . 1-1024 } accept", OUT, "c policy?"],
  ["ip saddr . tcp dport vmap { 10.1.0.2 . 443 : drop }; accept", OUT, "c 1"],
  ["fib daddr type local drop; accept", OUT, ""],
  ["tcp dport 1-1024 accept", OUT, ""],
  ["tcp dport != 80 drop; accept", PUBLISHED, ""],
  ["udp dport 443 accept", OUT, "c policy"],
  ["meta l4proto { tcp, udp } accept", OUT, ""],
  ["ct state established,related accept", OUT, "c policy"],
  ["ct state new accept", OUT, ""],
  ["ct state vmap { established : accept, new : drop }", OUT, "c 1"],
  ["ct status dnat accept", PUBLISHED, ""],
  ["ct status dnat accept", OUT, "c policy"],
  ["meta mark & 0x20000000 == 0x20000000 accept", { ...OUT, mark: 0x20000000 }, ""],
  ["meta mark & 0x20000000 == 0x20000000 accept", OUT, "c policy"],
  ["jump sub; accept", OUT, ""],
  ["goto sub; accept", OUT, "c policy"],
  ["jump dropping; accept", OUT, "dropping 2"],
  ["counter log drop; accept", OUT, "c 1"],
  ["reject; accept", OUT, "c 1"],
  // What is not understood leaves both outcomes open.
  ["meta skuid 0 accept", OUT, "c policy?"],
  ["limit rate 1/second accept; drop", OUT, "c 2?"],
  ["meta skuid 0 drop; accept", OUT, ""],
  ["limit name few drop; accept", OUT, ""],
  ["quota name much drop; accept", OUT, ""],
  ["counter name seen drop; accept", OUT, "c 1"],
])("nft: %s", (rules, packet, place) => {
  runShellInNetns(
    netns,
    `nft -f - <<'END'
    flush ruleset
    table inet t {
      limit few { rate over 9/second; }
      quota much { over 9 mbytes; }
      counter seen { }
      chain sub { ip saddr 192.0.2.0/24 drop; return; drop; }
      chain dropping { tcp dport 1 accept; tcp dport { 80, 443 } drop; }
      chain c { type filter hook forward priority 0; policy drop; ${rules}; }
    }
END`,
  );
  expect(walk(NFPROTO_INET, "t", "c", packet)).toBe(place);
});

test.each<[rules: string, packet: WalkedPacket, place: string]>([
  ["-m comment --comment all -j ACCEPT", OUT, ""],
  ["-i cni0 ! -o cni0 -j ACCEPT", OUT, ""],
  ["-s 10.1.0.0/24 -p tcp --dport 443 -j ACCEPT", OUT, ""],
  ["-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", OUT, "FORWARD policy"],
  ["-m conntrack ! --ctstate RELATED,ESTABLISHED -j ACCEPT", OUT, ""],
  ["-m conntrack --ctstate DNAT -j ACCEPT", PUBLISHED, ""],
  ["-m mark --mark 0x20000000/0x20000000 -j ACCEPT", { ...OUT, mark: 0x20000000 }, ""],
  ["-m mark ! --mark 0x1 -j ACCEPT", OUT, ""],
  ["-j REJECT", OUT, "FORWARD 1"],
  ["-p tcp -m multiport --dports 80,400:500 -j ACCEPT", OUT, ""],
  ["-p tcp -m multiport ! --dports 80,400:500 -j ACCEPT", OUT, "FORWARD policy"],
  ["-p tcp -m multiport --sports 80,443 -j ACCEPT", OUT, "FORWARD policy?"],
  ["-m addrtype --dst-type LOCAL -j ACCEPT", OUT, "FORWARD policy"],
  ["-m addrtype ! --dst-type LOCAL -j ACCEPT", OUT, ""],
  ["-m addrtype --src-type LOCAL -j ACCEPT", OUT, "FORWARD policy?"],
  ["-m statistic --mode random --probability 0.5 -j ACCEPT", OUT, "FORWARD policy?"],
])("iptables: %s", (rules, packet, place) => {
  runShellInNetns(netns, `iptables -P FORWARD DROP; iptables -F FORWARD; iptables -A FORWARD ${rules}`);
  expect(walk(NFPROTO_IPV4, "filter", "FORWARD", packet)).toBe(place);
});

/** Older versions of iptables-nft have these matches, newer ones compare the header. */
test.each<[name: string, ports: readonly number[], flags: readonly number[], expected: boolean | undefined]>([
  ["tcp", [0, 0xffff, 443, 443], [0, 0, 0, 0], true],
  ["tcp", [0, 0xffff, 80, 442], [0, 0, 0, 0], false],
  ["tcp", [0, 0xffff, 443, 443], [0, 0, 0, 0x02], false],
  ["tcp", [1024, 0xffff, 443, 443], [0, 0, 0, 0], undefined],
  ["tcp", [0, 0xffff, 443, 443], [0, 0x17, 0x02, 0], undefined],
  ["udp", [0, 0xffff, 443, 443], [0, 0], false],
])("xt_%s with ports %j and flags %j", (name, ports, flags, expected) => {
  const info = new Uint8Array([...new Uint8Array(Uint16Array.from(ports).buffer), ...flags]);
  expect(judgeIptablesMatch(name, info, OUT)).toBe(expected);
});
