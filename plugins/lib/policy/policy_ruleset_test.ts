import { expect } from "bun:test";
import { parseIp } from "../../../ffi/address.ts";
import { getGenerationId } from "../../../ffi/nft/objects.ts";
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import { IPPROTO_TCP, IPPROTO_UDP } from "../../../ffi/sys/uapi.ts";
import { netnsTest, runInNetns, runShellInNetns } from "../../../testing/netns.ts";
import { newChange, newDesired, newPolicyChain } from "../../../testing/policy_traffic.ts";
import { policyBridgeTable } from "../ruleset/policy_tables.ts";
import { createTable } from "../ruleset/table.ts";
import type { PeerSet } from "./desired.ts";
import { peerSetName } from "./object_names.ts";
import { PolicyRuleset } from "./policy_ruleset.ts";

const SCTP = 132;

const WEB = newPolicyChain("ingress web", "ingress", [
  { peers: ["role=db", "10.0.0.0/8"], ports: [{ protocol: IPPROTO_TCP, first: 80 }, { named: "dns" }] },
  {
    ports: [
      { protocol: IPPROTO_UDP, first: 1, last: 100 },
      { protocol: SCTP },
      { protocol: IPPROTO_TCP, ranges: "many" },
    ],
  },
]);
const POD = { owner: "web/a uid", ips: [parseIp("10.1.0.2"), parseIp("fd00::2")], ingress: "ingress web" };
const SETS: Readonly<Record<string, PeerSet>> = {
  "role=db": { kind: "addresses", ips: [parseIp("10.1.0.9"), parseIp("fd00::9")] },
  "10.0.0.0/8": {
    kind: "blocks",
    intervals: [
      [parseIp("10.0.0.0"), parseIp("10.1.0.7")],
      [parseIp("10.1.0.9"), parseIp("10.255.255.255")],
      [parseIp("fd00::"), parseIp("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")],
    ],
  },
  many: { kind: "ranges", ranges: [[443, 443], [8000, 8080], [60_000, 65_535]] },
  dns: { kind: "ports", elements: [{ ip: parseIp("10.1.0.2"), protocol: IPPROTO_UDP, port: 53 }] },
};
const DESIRED = newDesired([POD], [WEB], SETS);

/** As nft(8) prints it; sets have names of sums. */
const EXPECTED = [
  `	chain prerouting {
		comment "Drops what pods send from addresses of others"
		type filter hook prerouting priority raw; policy accept;
		iifgroup != "default" goto guard
	}`,
  `	chain guard {
		comment "What comes from pods, and is dropped unless the address is theirs"
		iifname . ip saddr @pod_addresses4 accept
		iifname . ip6 saddr @pod_addresses6 accept
		iifname != @pod_links accept
		ip6 saddr fe80::/10 accept
		ip6 saddr :: accept
		goto forged
	}`,
  `	chain forged {
		comment "What pods send from addresses of others"
		counter packets 0 bytes 0 drop
	}`,
  `	chain denied_ingress {
		comment "What no policy allows for ingress"
		counter packets 0 bytes 0 drop
	}`,
  `	chain forward {
		comment "Drops what no policy allows; a pod's own node is not asked"
		type filter hook forward priority filter; policy accept;
		ct state ! established,related goto judge
		ct mark & 0x10000000 != 0x00000000 goto cut
	}`,
  `	chain judge {
		comment "What belongs to no established connection"
		ct mark & 0x10000000 != 0x00000000 goto cut
		ip6 hoplimit 255 icmpv6 type 133-136 accept
		ip saddr . ip daddr @self4 accept
		ip6 saddr . ip6 daddr @self6 accept
		ip saddr vmap @egress4
		ip6 saddr vmap @egress6
		ip daddr vmap @ingress4
		ip6 daddr vmap @ingress6
	}`,
  `	chain pods4_A {
		comment "ingress web"
		ip saddr @peers4_B tcp dport 80 return
		ip saddr @peers4_B ip daddr . meta l4proto . th dport @peers4_C return
		ip saddr @peers4_D tcp dport 80 return
		ip saddr @peers4_D ip daddr . meta l4proto . th dport @peers4_C return
		udp dport 1-100 return
		meta l4proto sctp return
		tcp dport @peers4_E return
		goto denied_ingress
	}`,
  `	map ingress6 {
		type ipv6_addr : verdict
		comment "Pods that policies isolate for ingress"
		elements = { fd00::2 comment "web/a uid" : jump pods6_A }
	}`,
  `	set peers4_D {
		type ipv4_addr
		flags interval
		comment "10.0.0.0/8"
		elements = { 10.0.0.0-10.1.0.7, 10.1.0.9-10.255.255.255 }
	}`,
  `	set peers6_D {
		type ipv6_addr
		flags interval
		comment "10.0.0.0/8"
		elements = { fd00::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff }
	}`,
  `	set peers4_E {
		type inet_service
		flags interval
		comment "many"
		elements = { 443, 8000-8080, 60000-65535 }
	}`,
  `	set peers4_C {
		type ipv4_addr . inet_proto . inet_service
		comment "dns"
		elements = { 10.1.0.2 . udp . 53 }
	}`,
  `	chain guard {
		comment "What comes from pods, and is dropped unless the address is theirs"
		iifname . ether saddr . ip saddr @pod_sources4 goto route
		iifname . ether saddr . ip6 saddr @pod_sources6 goto route
		iifname != @pod_links accept
		iifname . ether saddr != @pod_macs goto forged
		iifname . arp saddr ether . arp saddr ip @pod_sources4 accept
		arp saddr ip 0.0.0.0 accept
		ip6 saddr fe80::/10 goto link
		ip6 saddr :: goto link
		goto forged
	}`,
  `	chain route {
		comment "Packets to one receiver go to the host"
		meta l4proto ipv6-icmp jump discovery
		ether daddr & 01:00:00:00:00:00 != 00:00:00:00:00:00 accept
		ip6 daddr fe80::/10 goto link
		ether daddr set iifname map @routed_ports meta pkttype set host
	}`,
  `	chain link {
		comment "Link-local packets, which no router may forward"
		meta l4proto ipv6-icmp jump discovery
		ether daddr & 01:00:00:00:00:00 != 00:00:00:00:00:00 accept
		ip6 hoplimit set 1
	}`,
  `	chain discovery {
		comment "Neighbour discovery, and who listens to which group"
		icmpv6 type nd-neighbor-advert goto claims
		icmpv6 type 130-136 accept
		icmpv6 type mld2-listener-report accept
	}`,
  `	chain claims {
		comment "Advertised addresses, as the source: dropped unless they are the pod's"
		ip6 saddr set @th,64,128
		iifname . ether saddr . ip6 saddr @pod_sources6 accept
		ip6 saddr fe80::/10 accept
		goto forged
	}`,
];

/** The sums of this test's keys, as letters. */
function withLetters(text: string): string {
  const sums = { A: "ingress web", B: "role=db", C: "dns", D: "10.0.0.0/8", E: "many" };
  return Object.entries(sums).reduce((replaced, [letter, key]) => {
    const sum = new Bun.CryptoHasher("sha256").update(key).digest("hex").slice(0, 32);
    return replaced.replaceAll(`_${sum}`, `_${letter}`);
  }, text);
}

netnsTest("nft(8) lists the ruleset, and would make the same", ({ host, container }) => {
  createTable(host.nft, policyBridgeTable);
  expect(new PolicyRuleset(host.nft).replace(DESIRED)).toBeDefined();
  const list = () => runInNetns(host, "nft", "list", "ruleset");
  const text = withLetters(list());
  for (const part of EXPECTED) expect(text).toContain(part);
  const again = container.run(() => Bun.spawnSync(["nft", "-f", "-"], { stdin: Buffer.from(list()) }));
  expect(again.stderr.toString()).toBe("");
  expect(runInNetns(container, "nft", "list", "ruleset")).toBe(list());
});

netnsTest("what is right stays untouched, and what differs is mended", ({ host }) => {
  const ruleset = new PolicyRuleset(host.nft);
  ruleset.replace(DESIRED);
  const generation = getGenerationId(host.nft);
  expect(ruleset.replace(DESIRED)).toBeUndefined();
  expect(getGenerationId(host.nft)).toBe(generation);
  const list = () => runInNetns(host, "nft", "-s", "list", "ruleset");
  const before = list();
  const name = (pattern: RegExp) => pattern.exec(list())?.[0];
  for (
    const change of [
      `nft flush chain inet cni_policy ${name(/pods4_\w+/)}`,
      `nft add rule inet cni_policy ${name(/pods6_\w+/)} accept`,
      `nft flush set inet cni_policy ${name(/peers4_\w+/)}`,
      "nft flush map inet cni_policy ingress4",
      "nft flush chain inet cni_policy forward",
      "nft add element inet cni_policy egress4 '{ 10.1.0.3 : drop }'",
      "nft delete table inet cni_policy",
    ]
  ) {
    runShellInNetns(host, change);
    expect(list()).not.toBe(before);
    expect(ruleset.replace(DESIRED)).toBeDefined();
    expect(list().split("\n").sort()).toEqual(before.split("\n").sort());
  }
});

netnsTest(
  "addresses that may be peers stay, surplus blocks and ports go",
  ({ host }) => {
    const ruleset = new PolicyRuleset(host.nft);
    ruleset.replace(DESIRED);
    const list = () => runInNetns(host, "nft", "-s", "list", "ruleset");
    const before = list();
    const addTo = (key: string, elements: string) =>
      runShellInNetns(host, `nft add element inet cni_policy ${peerSetName(key, 4)} '{ ${elements} }'`);
    addTo("10.0.0.0/8", "12.0.0.0-12.0.0.9, 14.0.0.0");
    expect(ruleset.replace(DESIRED, { mayBePeer: () => true })).toBe("4 elements");
    addTo("many", "9000, 9001, 9100-9200");
    expect(ruleset.replace(DESIRED, { mayBePeer: () => true })).toBe("6 elements");
    expect(list()).toBe(before);
    runShellInNetns(host, `nft delete element inet cni_policy ${peerSetName("many", 4)} '{ 8000-8080 }'`);
    addTo("many", "8000-8100");
    expect(ruleset.replace(DESIRED)).toBe("2 elements");
    expect(list()).toBe(before);
    addTo("role=db", "10.1.0.77");
    expect(ruleset.replace(DESIRED, { mayBePeer: () => true })).toBeUndefined();
    expect(ruleset.replace(DESIRED)).toBe("1 elements");
    expect(list()).toBe(before);
  },
);

netnsTest("changes by element come to the same as a replacement", ({ host, container }) => {
  const [changed, replaced] = [host, container].map(({ nft }) => new PolicyRuleset(nft));
  changed!.replace(newDesired([]));
  changed!.change(newChange({ setsAdded: new Map(Object.entries(SETS)), chainsAdded: [WEB], pods: [POD] }));
  replaced!.replace(DESIRED);
  const lines = (netns: typeof host) => runInNetns(netns, "nft", "list", "ruleset").split("\n").sort();
  expect(lines(host)).toEqual(lines(container));
  const [more, fewer] = [[parseIp("10.1.0.10"), parseIp("fd00::9")], [parseIp("10.1.0.9")]];
  const other = newPolicyChain("ingress other", "ingress", [{ peers: ["role=db"] }]);
  changed!.change(newChange({
    elements: [
      { set: "role=db", added: { kind: "addresses", ips: [more[0]!] }, removed: { kind: "addresses", ips: fewer } },
      { set: "dns", removed: SETS.dns! },
    ],
    chainsAdded: [other],
    chainsRemoved: ["ingress web"],
    setsRemoved: ["10.0.0.0/8", "many"],
    pods: [{ ...POD, ingress: "ingress other" }],
  }));
  const empty: PeerSet = { kind: "ports", elements: [] };
  replaced!.replace(
    newDesired([{ ...POD, ingress: "ingress other" }], [other], {
      "role=db": { kind: "addresses", ips: more },
      dns: empty,
    }),
  );
  expect(lines(host)).toEqual(lines(container));
  const before = lines(host);
  // A change of something that is not there changes nothing.
  const impossible = newChange({ setsRemoved: ["dns"], elements: [{ set: "role=x", added: SETS["role=db"]! }] });
  expect(() => changed!.change(impossible)).toThrow(NetlinkError);
  expect(lines(host)).toEqual(before);
});
