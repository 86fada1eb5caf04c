import { expect, test } from "bun:test";
import { parseCidr, parseIp } from "../../ffi/address.ts";
import { getGenerationId } from "../../ffi/nft/objects.ts";
import { netnsTest, newNamespaces, runInNetns } from "../../testing/netns.ts";
import type { ClusterNode } from "../node.ts";
import { ClusterNetwork } from "./cluster_network.ts";
import { intervalElements, widestRanges } from "./intervals.ts";
import { DEFAULT_CLUSTER_SETTINGS } from "./settings.ts";

function nodeOf(number: number, prefix = 24): ClusterNode {
  return {
    uid: `uid-${number}`,
    name: `node-${number}`,
    createdAtMs: number,
    addresses: [parseIp(`192.0.2.${number}`), parseIp(`2001:db8::${number}`)],
    podCidrs: [parseCidr(`10.244.${number}.0/${prefix}`), parseCidr(`fd00:0:0:${number.toString(16)}::/64`)],
  };
}

const CHAINS = `	chain prerouting {
		comment "Packets of the tunnel"
		type filter hook prerouting priority raw; policy accept;
		udp dport 4789 ip saddr @nodes4 ip daddr @nodes4 notrack
		udp dport 4789 ip6 saddr @nodes6 ip6 daddr @nodes6 notrack
		icmpv6 type packet-too-big @th,112,8 0x11 @th,400,16 0x12b5 ip6 daddr @nodes6 notrack
	}

	chain output {
		comment "Packets of the tunnel"
		type filter hook output priority raw; policy accept;
		udp dport 4789 ip saddr @nodes4 ip daddr @nodes4 notrack
		udp dport 4789 ip6 saddr @nodes6 ip6 daddr @nodes6 notrack
	}

	chain input {
		comment "Packets of the tunnel"
		type filter hook input priority filter; policy accept;
		udp dport 4789 goto tunnel_input
	}

	chain forward {
		comment "Packets between nodes"
		type filter hook forward priority filter - 9; policy accept;
		udp dport 4789 goto tunnel_forward
		meta mark & 0x20000000 == 0x20000000 accept
		ct status dnat goto forward_mark_services
		ip daddr @own4 goto forward_mark_inbound
		ip6 daddr @own6 goto forward_mark_inbound
	}

	chain postrouting {
		comment "Masquerading"
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr @own4 ip daddr != @cluster4 ip daddr != @outside4 masquerade
		ip saddr @former4 ip daddr != @own4 masquerade
		ip6 saddr @own6 ip6 daddr != @cluster6 ip6 daddr != @outside6 masquerade
		ip6 saddr @former6 ip6 daddr != @own6 masquerade
	}

	chain tunnel_input {
		comment "Known nodes with sources in their own ranges"
		ct status dnat drop
		fib daddr . iif type != local iif != @uplinks fib saddr . iif oif missing drop
		@th,64,64 != 0x8000000636e6900 drop
		@th,224,16 0x800 ip daddr . ip saddr . @th,336,32 & 0xfffffe00 @tunnel44 accept
		@th,224,16 0x800 ip daddr . ip saddr . @th,336,32 & 0xffffff00 @tunnel44 accept
		@th,224,16 0x86dd ip daddr . ip saddr . @th,304,128 & 0xffffffffffffffff0000000000000000 @tunnel46 accept
		@th,224,16 0x800 ip6 daddr . ip6 saddr . @th,336,32 & 0xfffffe00 @tunnel64 accept
		@th,224,16 0x800 ip6 daddr . ip6 saddr . @th,336,32 & 0xffffff00 @tunnel64 accept
		@th,224,16 0x86dd ip6 daddr . ip6 saddr . @th,304,128 & 0xffffffffffffffff0000000000000000 @tunnel66 accept
		drop
	}

	chain tunnel_forward {
		comment "Packets to the tunnel's port of anybody"
		ip daddr @nodes4 goto tunnel_nodes
		ip6 daddr @nodes6 goto tunnel_nodes
	}

	chain tunnel_nodes {
		comment "Nodes only: pods would look like one"
		ct status dnat drop
		fib saddr . iif oif missing drop
		ip saddr @nodes4 return
		ip6 saddr @nodes6 return
		drop
	}

	chain forward_mark_services {
		comment "Packets of Services, which may have their pods on other nodes"
		ip daddr @cluster4 meta mark set meta mark | 0x20000000 accept
		ct direction reply ip saddr @cluster4 meta mark set meta mark | 0x20000000 accept
		ip6 daddr @cluster6 meta mark set meta mark | 0x20000000 accept
		ct direction reply ip6 saddr @cluster6 meta mark set meta mark | 0x20000000 accept
	}

	chain forward_mark_inbound {
		comment "Packets to this node's pods, of other nodes and of their pods"
		fib saddr . iif oif missing accept
		ip saddr @cluster4 meta mark set meta mark | 0x20000000 accept
		ip saddr @nodes4 meta mark set meta mark | 0x20000000 accept
		ip6 saddr @cluster6 meta mark set meta mark | 0x20000000 accept
		ip6 saddr @nodes6 meta mark set meta mark | 0x20000000 accept
	}
`;

netnsTest("the table is one that nft(8) can list, and the same for any number of nodes", ({ host }) => {
  const settings = {
    ...DEFAULT_CLUSTER_SETTINGS,
    nonMasqueradeCidrs: [parseCidr("10.0.0.0/8"), parseCidr("10.1.0.0/16")],
  };
  using network = host.run<ClusterNetwork>(() => new ClusterNetwork({ settings, log: () => {} }));
  host.run(() => network.replace(nodeOf(1), [nodeOf(2, 23), nodeOf(4)], [parseCidr("10.99.0.0/24")]));
  const list = () => runInNetns(host, "nft", "list", "table", "inet", "cni_cluster");
  expect(list()).toContain(CHAINS);
  const sets = Object.fromEntries(
    Array.from(list().matchAll(/set (\w+) \{[^}]*?(?:elements = \{ ([^}]*) \})?\n\t\}/g), ([, name, elements = ""]) => [
      name,
      elements.split(/,\s*/).sort(),
    ]),
  );
  expect(sets).toMatchObject({
    own4: ["10.244.1.0/24", "10.99.0.0/24"],
    former4: ["10.99.0.0/24"],
    cluster4: ["10.244.1.0/24", "10.244.2.0/23", "10.244.4.0/24"],
    outside4: ["10.0.0.0/8", "224.0.0.0/4"],
    nodes4: ["192.0.2.1", "192.0.2.2", "192.0.2.4"],
    tunnel44: ["192.0.2.1 . 192.0.2.2 . 10.244.2.0", "192.0.2.1 . 192.0.2.4 . 10.244.4.0"],
    tunnel46: ["192.0.2.1 . 192.0.2.2 . fd00:0:0:2::", "192.0.2.1 . 192.0.2.4 . fd00:0:0:4::"],
    tunnel64: [""],
    outside6: ["ff00::/8"],
  });
  for (let number = 5; number < 200; number++) {
    host.run(() => network.update(new Map([[`uid-${number}`, nodeOf(number)]])));
  }
  expect(list()).toContain(CHAINS);
});

netnsTest("whatever order nodes come and go in, elements are those of the nodes that are there", ({ host }) => {
  const options = { settings: DEFAULT_CLUSTER_SETTINGS, log: () => {} };
  using network = host.run<ClusterNetwork>(() => new ClusterNetwork(options));
  host.run(() => network.replace(nodeOf(1), [], []));
  const present = new Map<string, ClusterNode>();
  // A fixed sequence that looks like any other.
  let seed = 7;
  for (let step = 0; step < 600; step++) {
    seed = seed * 48271 % 0x7fffffff;
    const node = nodeOf(2 + seed % 40);
    if (present.has(node.uid)) present.delete(node.uid);
    else present.set(node.uid, node);
    host.run(() => network.update(new Map([[node.uid, present.get(node.uid)]])));
    expect(network.problems().filter((text) => !text.includes("tunnel") && !text.includes("route"))).toEqual([]);
  }
  const generation = getGenerationId(host.nft);
  host.run(() => network.replace(nodeOf(1), present.values(), []));
  expect(getGenerationId(host.nft)).toBe(generation);
});

test.each([
  ["in the range of an older one", "10.244.2.0/25", "10.244.2.0/24", ["10.244.2.0/24"]],
  ["around the range of an older one", "10.244.2.0/24", "10.244.2.0/25", ["10.244.2.0/24"]],
  ["around, with the same end", "10.244.2.0/24", "10.244.2.128/25", ["10.244.2.0/24"]],
  ["that an older one has", "10.244.2.0/24", "10.244.2.0/24", ["10.244.2.0/24"]],
])("a node whose range lies %s has all rules, whichever comes first", (_, ownCidr, olderCidr, cluster4) => {
  const own: ClusterNode = { ...nodeOf(2), podCidrs: [parseCidr(ownCidr)] };
  const older: ClusterNode = { ...nodeOf(9), createdAtMs: 1, podCidrs: [parseCidr(olderCidr)] };
  for (const isFirst of [true, false]) {
    using namespaces = newNamespaces();
    const { host } = namespaces;
    const options = { settings: DEFAULT_CLUSTER_SETTINGS, log: () => {} };
    using network = host.run<ClusterNetwork>(() => new ClusterNetwork(options));
    host.run(() => network.replace(own, isFirst ? [older] : [], []));
    if (!isFirst) host.run(() => network.update(new Map([[older.uid, older]])));
    expect(network.isSetUp).toBe(true);
    const elements = () =>
      /set cluster4 .*?elements = \{ (.*?) \}/s.exec(
        runInNetns(host, "nft", "list", "set", "inet", "cni_cluster", "cluster4"),
      )?.[1]?.split(/,\s*/);
    expect(elements()).toEqual(cluster4);
    host.run(() => network.update(new Map([[older.uid, undefined]])));
    expect(elements()).toEqual([ownCidr]);
    expect(network.isSetUp).toBe(true);
  }
});

test("an interval ends behind its last address, or not at all", () => {
  const texts = (cidr: string) =>
    intervalElements("s", parseCidr(cidr)).map(({ key, flags = 0 }) => [[...key].join("."), flags]);
  expect(texts("10.1.2.0/24")).toEqual([["10.1.2.0", 0], ["10.1.3.0", 1]]);
  expect(texts("255.255.255.0/24")).toEqual([["255.255.255.0", 0]]);
  expect(texts("0.0.0.0/0")).toEqual([["0.0.0.0", 0]]);
});

test("ranges within others are left out", () => {
  const ranges = ["10.1.0.0/16", "10.1.2.0/24", "fd00::/8", "10.1.0.0/16", "fd12::/64", "10.2.0.0/16"].map(parseCidr);
  expect(widestRanges(ranges)).toEqual(["fd00::/8", "10.1.0.0/16", "10.2.0.0/16"].map(parseCidr));
});
