import { expect } from "bun:test";
import { runInNetns } from "../../testing/netns.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, requestUdp, serveTcp, serveTcpAndUdp } from "../../testing/traffic.ts";
import { bridgeNetworkTest } from "../../testing/bridge_network.ts";
import { addMasquerade } from "../lib/veth/masquerade.ts";
import portmap from "./plugin.ts";
import { portMappingConfig, WEB_PORT_MAPPINGS } from "../../testing/portmap.ts";
import { containerChains, nftElements, nftListRuleset } from "../../testing/ruleset.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";

const LISTING = `table inet cni {
	comment "Container networks; managed by cni"
	map hostports4 {
		type inet_proto . inet_service : ipv4_addr . inet_service
		comment "Published ports, with the address and port of the container"
		elements = { tcp . 8080 comment "web c1 eth0" : 10.88.0.2 . 80 }
	}

	map hostip_hostports4 {
		type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service
		comment "Published ports of one address of the host"
		elements = { 192.0.2.1 . udp . 53 comment "web c1 eth0" : 10.88.0.2 . 53 }
	}

	map conditions4 {
		type inet_proto . inet_service : verdict
		comment "Published ports with conditions"
		elements = { tcp . 8080 comment "web c1 eth0" : goto conditions4-b2e19775881ceb69 }
	}

	map hostip_conditions4 {
		type ipv4_addr . inet_proto . inet_service : verdict
		comment "Published ports of one address of the host, with conditions"
		elements = { 192.0.2.1 . udp . 53 comment "web c1 eth0" : goto hostip_conditions4-b2e19775881ceb69 }
	}

	map hairpin4 {
		type ipv4_addr : verdict
		comment "Containers whose published ports masquerade some callers"
		elements = { 10.88.0.2 comment "web c1 eth0" : jump hairpin-10.88.0.0/16 }
	}

	map hostports6 {
		type inet_proto . inet_service : ipv6_addr . inet_service
		comment "Published ports, with the address and port of the container"
		elements = { tcp . 8080 comment "web c1 eth0" : fd88::2 . 80 }
	}

	map hairpin6 {
		type ipv6_addr : verdict
		comment "Containers whose published ports masquerade some callers"
		elements = { fd88::2 comment "web c1 eth0" : jump hairpin-fd88--/64 }
	}

	map loopback4 {
		type inet_proto . inet_service : ipv4_addr
		comment "Published ports, with the source that calls from 127.0.0.0/8 get"
		elements = { tcp . 8080 comment "web c1 eth0" : 10.88.0.1 }
	}

	map hostip_loopback4 {
		type ipv4_addr . inet_proto . inet_service : ipv4_addr
		comment "Published ports, with the source that calls from 127.0.0.0/8 get"
		elements = { 192.0.2.1 . udp . 53 comment "web c1 eth0" : 10.88.0.1 }
	}

	set owners {
		type mark . mark . mark . mark . inet_service
		comment "What each attachment has in other sets"
		elements = { 0xf7b0903c . 0xc8eb5e16 . 0x37ccf867 . 0x85ff0b4c . 0 comment "web c1 eth0 #ports" }
	}

	chain hostports {
		comment "Published ports: first those of one address of the host"
		ip daddr . meta l4proto . th dport vmap @hostip_conditions4
		dnat ip to ip daddr . meta l4proto . th dport map @hostip_hostports4
		ip6 daddr . meta l4proto . th dport vmap @hostip_conditions6
		dnat ip6 to ip6 daddr . meta l4proto . th dport map @hostip_hostports6
		goto hostports_any_address
	}

	chain hostports_any_address {
		comment "Published ports of all addresses of the host"
		meta nfproto ipv4 meta l4proto . th dport vmap @conditions4
		dnat ip to meta l4proto . th dport map @hostports4
		meta nfproto ipv6 meta l4proto . th dport vmap @conditions6
		dnat ip6 to meta l4proto . th dport map @hostports6
	}

	chain ingress_policies {
		comment "Drops new connections that an ingressPolicy forbids"
		oifname vmap @isolated_bridges
		oifname vmap @same_bridge_bridges
		ip daddr vmap @ingress4
		ip6 daddr vmap @ingress6
	}

	chain forward_mark_set {
		comment "Sets bit 0x20000000 of the mark"
		meta mark set meta mark | 0x20000000
	}

	chain forward_mark_inbound {
		comment "Packets to containers: answers and calls to published ports"
		ct state established,related goto forward_mark_set
		ct status dnat goto forward_mark_set
		meta mark set meta mark & 0xdfffffff
	}

	chain forward_mark {
		comment "Packets that other firewalls must accept, for chains that run early"
		meta mark set meta mark & 0xdfffffff
		ip saddr @forward4 goto forward_mark_set
		ip daddr @forward4 goto forward_mark_inbound
		ip6 saddr @forward6 goto forward_mark_set
		ip6 daddr @forward6 goto forward_mark_inbound
	}

	chain before_filter {
		comment "Sets bit 0x20000000 of the mark for accept rules of other tables"
		type filter hook forward priority filter - 10; policy accept;
		ip saddr @forward4 goto forward_mark_set
		ip daddr @forward4 goto forward_mark_inbound
		ip6 saddr @forward6 goto forward_mark_set
		ip6 daddr @forward6 goto forward_mark_inbound
		meta mark set meta mark & 0xdfffffff
	}

	chain after_filter {
		comment "Clears bit 0x20000000 of the mark, and asks who may call containers"
		type filter hook forward priority 2147483647; policy accept;
		meta mark set meta mark & 0xdfffffff
		ct state ! established,related goto ingress_policies
	}

	chain prerouting {
		comment "Calls from elsewhere to published ports"
		type nat hook prerouting priority dstnat; policy accept;
		ip daddr 127.0.0.0/8 return
		fib daddr type local jump hostports
	}

	chain output {
		comment "Calls from this host to published ports"
		type nat hook output priority -100; policy accept;
		fib daddr type local jump hostports
	}

	chain postrouting {
		comment "Masquerading"
		type nat hook postrouting priority srcnat; policy accept;
		ct status dnat oifname != "lo" ct original ip saddr 127.0.0.0/8 masquerade
		ct status dnat oifname != "lo" ct original ip6 saddr ::1 masquerade
		ct status dnat ip daddr vmap @hairpin4
		ct status dnat ip6 daddr vmap @hairpin6
		ip saddr vmap @masquerade4
		ip6 saddr vmap @masquerade6
	}

	chain loopback_calls {
		comment "Gives calls from 127.0.0.0/8 to published ports another source"
		type route hook output priority mangle; policy accept;
		ip saddr 127.0.0.0/8 oifname "lo" ip saddr set ip daddr . meta l4proto . th dport map @hostip_loopback4
		ip saddr 127.0.0.0/8 oifname "lo" ip saddr set meta l4proto . th dport map @loopback4
	}

	chain loopback_answers {
		comment "Gives answers to loopback addresses a destination that the kernel takes from links"
		type filter hook prerouting priority dstnat + 10; policy accept;
		ip daddr 127.0.0.0/8 iifname != "lo" ct direction reply ct status dnat ip daddr set ct reply ip daddr
		ip6 daddr ::1 iifname != "lo" ct direction reply ct status dnat ip6 daddr set ct reply ip6 daddr
	}

	chain loopback_input {
		comment "Gives those answers the caller's address again"
		type filter hook input priority 110; policy accept;
		iifname != "lo" ct direction reply ct status dnat ct original ip saddr 127.0.0.0/8 ip daddr set ct original ip saddr
		iifname != "lo" ct direction reply ct status dnat ct original ip6 saddr ::1 ip6 daddr set ct original ip6 saddr
	}

	chain conditions4-b2e19775881ceb69 {
		ip saddr != 192.0.2.0/24 iifname "up*" dnat ip to meta l4proto . th dport map @hostports4
	}

	chain hostip_conditions4-b2e19775881ceb69 {
		ip saddr != 192.0.2.0/24 iifname "up*" dnat ip to ip daddr . meta l4proto . th dport map @hostip_hostports4
		goto hostports_any_address
	}

	chain hairpin-10.88.0.0/16 {
		ip saddr 10.88.0.0/16 masquerade
	}

	chain hairpin-fd88--/64 {
		ip6 saddr fd88::/64 masquerade
	}
}
`;

bridgeNetworkTest(
  "calls from 127.0.0.1 get another source only where they reach a published port, and no link is opened",
  (network) => {
    const c1 = network.container(2);
    const loopback = () => nftElements(network.host).filter((element) => element.includes("loopback4"));
    const mapping = { hostPort: 8080, containerPort: 80 };
    for (
      const config of [
        portMappingConfig([mapping], { snat: false }),
        portMappingConfig([{ ...mapping, hostIP: "::" }]),
      ]
    ) {
      network.call(portmap, "ADD", config, { container: c1 });
      expect(loopback()).toEqual([]);
      network.call(portmap, "DEL", config, { container: c1 });
    }
    const mappings = [mapping, { ...mapping, hostPort: 81, hostIP: "127.0.0.2" }];
    network.call(portmap, "ADD", portMappingConfig(mappings), { container: c1 });
    expect(loopback()).toEqual([
      'hostip_loopback4: 127.0.0.2 . tcp . 81 comment "web c1 eth0" : 10.88.0.1',
      'loopback4: tcp . 8080 comment "web c1 eth0" : 10.88.0.1',
    ]);
    expect(runInNetns(network.host, "sh", "-c", "grep -l 1 /proc/sys/net/ipv4/conf/*/route_localnet || true")).toBe("");
    network.call(portmap, "DEL", portMappingConfig(mappings), { container: c1 });
    expect(loopback()).toEqual([]);
    return Promise.resolve();
  },
);

bridgeNetworkTest("packets of a host without published ports meet no chains for calls from 127.0.0.1", (network) => {
  const { host, call } = network;
  const c1 = network.container(2);
  addMasquerade(host.nft, { network: "web", containerId: "c1", ifname: "eth0" }, c1.addresses);
  call(portmap, "ADD", portMappingConfig([]), { container: c1 });
  expect(nftListRuleset(host)).not.toContain("chain loopback_");
  call(portmap, "ADD", portMappingConfig([{ hostPort: 8080, containerPort: 80 }]), { container: c1 });
  expect(nftListRuleset(host).match(/chain loopback_\w+/g)).toHaveLength(3);
  return Promise.resolve();
});

bridgeNetworkTest("calls from 127.0.0.1 over TCP and UDP end with the rules", async (network) => {
  const { host, call } = network;
  const c1 = network.container(2);
  using _c1 = await serveTcpAndUdp(c1.netns, "c1");
  call(portmap, "ADD", WEB_PORT_MAPPINGS, { container: c1 });
  expect(await requestTcp(host, "127.0.0.1", 8080)).toBe("c1 10.88.0.1");
  expect(await requestUdp(host, "127.0.0.1", 5353)).toBe("c1 10.88.0.1");
  runInNetns(host, "nft", "flush", "ruleset");
  expect(await requestTcp(host, "127.0.0.1", 8080, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
});

bridgeNetworkTest("a table of an earlier release gets what it lacks with the next ADD", async (network) => {
  const { host, call } = network;
  const [c1, c2] = [network.container(2), network.container(3)];
  using _c2 = serveTcp(c2.netns, "c2", 80);
  call(portmap, "ADD", portMappingConfig([{ hostPort: 80, containerPort: 80 }], { snat: false }), { container: c1 });
  const whole = nftListRuleset(host);
  for (
    const lacking of ["chain inet cni loopback_answers", "set inet cni owners"]
  ) runInNetns(host, "nft", "delete", ...lacking.split(" "));
  const config = portMappingConfig([{ hostPort: 8080, containerPort: 80 }]);
  call(portmap, "ADD", config, { container: c2, containerId: "c2" });
  expect(await requestTcp(host, "127.0.0.1", 8080)).toBe("c2 10.88.0.1");
  call(portmap, "DEL", config, { container: c2, containerId: "c2" });
  const sorted = (text: string) => text.split("\n").sort();
  expect(sorted(nftListRuleset(host))).toEqual(sorted(whole));
});

bridgeNetworkTest(
  "of two containers that want one port, the second is refused and told who has it",
  async (network) => {
    const { host, outside, call } = network;
    const c1 = network.container(2);
    const c2 = network.container(3);
    using _c1 = await serveTcpAndUdp(c1.netns, "c1");
    using _c2 = await serveTcpAndUdp(c2.netns, "c2");
    call(portmap, "ADD", WEB_PORT_MAPPINGS, { container: c1, containerId: "first" });
    const before = nftListRuleset(host);
    const config = portMappingConfig([{ hostPort: 9090, containerPort: 80 }, {
      hostPort: 5353,
      containerPort: 53,
      protocol: "UDP",
    }]);
    const { code, message } = errorOfCall(() => call(portmap, "ADD", config, { container: c2, containerId: "second" }));
    expect(code).toBe(100);
    expect(message).toBe(
      'Cannot publish host port 5353/udp: container "first" (network "web", interface "eth0") has it',
    );
    expect(nftListRuleset(host)).toBe(before);
    call(portmap, "DEL", config, { container: c2, containerId: "second" });
    expect(nftListRuleset(host)).toBe(before);
    expect(await requestUdp(outside, "192.0.2.1", 5353)).toBe("c1 192.0.2.2");
    // The same number of another protocol is another port.
    const others = portMappingConfig([{ hostPort: 8080, containerPort: 80, protocol: "sctp" }]);
    call(portmap, "ADD", others, { container: c2, containerId: "second" });
  },
);

bridgeNetworkTest(
  "ADD may be repeated, replaces its own stale address, and a late DEL takes nothing from others",
  (network) => {
    const { host, call } = network;
    const c1 = network.container(2);
    const c2 = network.container(3);
    const result = call(portmap, "ADD", WEB_PORT_MAPPINGS, { container: c1 });
    const once = nftElements(host);
    expect(call(portmap, "ADD", WEB_PORT_MAPPINGS, { container: c1 })).toEqual(result);
    expect(nftElements(host)).toEqual(once);
    call(portmap, "CHECK", WEB_PORT_MAPPINGS, { container: c1 });
    expect(() => call(portmap, "CHECK", WEB_PORT_MAPPINGS, { container: c2 })).toThrow(
      /Check failed: .* host port 8080\/tcp has another target/,
    );
    call(portmap, "ADD", WEB_PORT_MAPPINGS, { container: c2 });
    expect(nftElements(host).filter((each) => each.startsWith("hostports4"))).toEqual([
      'hostports4: tcp . 8080 comment "web c1 eth0" : 10.88.0.3 . 80',
      'hostports4: udp . 5353 comment "web c1 eth0" : 10.88.0.3 . 53',
    ]);
    call(portmap, "DEL", WEB_PORT_MAPPINGS, { container: c2 });
    // A has port and address, then B has both, then A's DEL comes (again).
    call(portmap, "ADD", WEB_PORT_MAPPINGS, { container: c1, containerId: "a" });
    call(portmap, "DEL", WEB_PORT_MAPPINGS, { container: c1, containerId: "a" });
    call(portmap, "ADD", WEB_PORT_MAPPINGS, { container: c1, containerId: "b" });
    const held = nftElements(host);
    call(portmap, "DEL", WEB_PORT_MAPPINGS, { container: c1, containerId: "a" });
    call(portmap, "DEL", {}, { containerId: "a" });
    call(portmap, "DEL", WEB_PORT_MAPPINGS, { container: c1, containerId: "b", ifname: "net1" });
    call(portmap, "DEL", { ...WEB_PORT_MAPPINGS, name: "other" }, { container: c1, containerId: "b" });
    expect(nftElements(host)).toEqual(held);
    call(portmap, "CHECK", WEB_PORT_MAPPINGS, { container: c1, containerId: "b" });
    return Promise.resolve();
  },
);

for (
  const [name, config, withResult] of [
    ["the mappings", WEB_PORT_MAPPINGS, true],
    ["the mappings and no prevResult", WEB_PORT_MAPPINGS, false],
    ["neither mappings nor prevResult", {}, false],
    ["mappings that cannot be read", portMappingConfig([{ hostPort: 0, containerPort: 80 }]), true],
    ["other mappings than ADD had", portMappingConfig([{ hostPort: 9, containerPort: 9 }]), true],
  ] as const
) {
  bridgeNetworkTest(`DEL with ${name} leaves nothing of the container`, (network) => {
    const container = network.container(2);
    network.call(portmap, "ADD", WEB_PORT_MAPPINGS, { container });
    expect(nftElements(network.host)).toHaveLength(8);
    network.call(portmap, "DEL", config, withResult ? { container } : {});
    network.call(portmap, "DEL", config, withResult ? { container } : {});
    expect(nftElements(network.host)).toEqual([]);
    expect(containerChains(network.host)).toEqual([]);
    return Promise.resolve();
  });
}

bridgeNetworkTest("nft(8) prints what is published, and reads it back", (network) => {
  const { host, outside, call } = network;
  const container = network.container(2);
  const mappings = [{ hostPort: 8080, containerPort: 80 }, {
    hostPort: 53,
    containerPort: 53,
    protocol: "udp",
    hostIP: "192.0.2.1",
  }];
  const conditions = { conditionsV4: ["!", "-s", "192.0.2.0/24", "-i", "up+"] };
  call(portmap, "ADD", portMappingConfig(mappings, conditions), { container });
  const printed = nftListRuleset(host);
  outside.run(() => void Bun.spawnSync(["nft", "-f", "-"], { stdin: new TextEncoder().encode(printed) }));
  expect(nftListRuleset(outside)).toBe(printed);
  // Sets and maps without elements say nothing.
  expect(printed.replaceAll(/\t(map|set) \S+ \{\n\t\ttype .*\n\t\tcomment .*\n\t\}\n\n/g, "")).toBe(LISTING);
  return Promise.resolve();
});

bridgeNetworkTest("GC removes what belongs to containers that live no more", (network) => {
  const { host, call } = network;
  const mapping = (hostPort: number) => portMappingConfig([{ hostPort, containerPort: 80 }]);
  call(portmap, "ADD", mapping(1), { container: network.container(2), containerId: "living" });
  call(portmap, "ADD", mapping(2), { container: network.container(3), containerId: "dead" });
  call(portmap, "ADD", { ...mapping(3), name: "other" }, { container: network.container(4), containerId: "dead" });
  call(portmap, "GC", { "cni.dev/valid-attachments": [{ containerID: "living", ifname: "eth0" }] });
  expect(nftElements(host).map((each) => each.replace(/ :.*/, ""))).toEqual([
    'hairpin4: 10.88.0.2 comment "web living eth0"',
    'hairpin4: 10.88.0.4 comment "other dead eth0"',
    'hairpin6: fd88::2 comment "web living eth0"',
    'hairpin6: fd88::4 comment "other dead eth0"',
    'hostports4: tcp . 1 comment "web living eth0"',
    'hostports4: tcp . 3 comment "other dead eth0"',
    'hostports6: tcp . 1 comment "web living eth0"',
    'hostports6: tcp . 3 comment "other dead eth0"',
    'loopback4: tcp . 1 comment "web living eth0"',
    'loopback4: tcp . 3 comment "other dead eth0"',
  ]);
  return Promise.resolve();
});

bridgeNetworkTest("CHECK notices what is missing and what is not ours", (network) => {
  const { host, call } = network;
  const container = network.container(2);
  call(portmap, "ADD", WEB_PORT_MAPPINGS, { container });
  call(portmap, "CHECK", WEB_PORT_MAPPINGS, { container });
  expect(() => call(portmap, "CHECK", WEB_PORT_MAPPINGS, { container, containerId: "c2" })).toThrow(
    /belongs to container "c1"/,
  );
  runInNetns(host, "nft", "delete", "element", "inet", "cni", "hairpin6", "{ fd88::2 }");
  expect(() => call(portmap, "CHECK", WEB_PORT_MAPPINGS, { container })).toThrow(
    /fd88::2 by a published port is missing/,
  );
  runInNetns(host, "nft", "delete", "table", "inet", "cni");
  expect(() => call(portmap, "CHECK", WEB_PORT_MAPPINGS, { container })).toThrow(/host port 8080\/tcp is missing/);
  call(portmap, "CHECK", {}, { container });
  return Promise.resolve();
});

bridgeNetworkTest("a thousand mappings are a thousand elements and the same rules", async (network) => {
  const { host, outside, call } = network;
  const container = network.container(2);
  using _c1 = await serveTcpAndUdp(container.netns, "c1");
  const rules = () => runInNetns(host, "nft", "-s", "-t", "list", "ruleset");
  call(portmap, "ADD", WEB_PORT_MAPPINGS, { container, containerId: "one" });
  const few = rules();
  const many = portMappingConfig(Array.from({ length: 1000 }, (_, i) => ({ hostPort: 10000 + i, containerPort: 80 })));
  call(portmap, "ADD", many, { container, containerId: "thousand" });
  expect(rules()).toBe(few);
  expect(nftElements(host).filter((each) => each.startsWith("hostports4"))).toHaveLength(1002);
  expect(await requestTcp(outside, "192.0.2.1", 10999)).toBe("c1 192.0.2.2");
  call(portmap, "CHECK", many, { container, containerId: "thousand" });
  call(portmap, "DEL", many, { container, containerId: "thousand" });
  expect(nftElements(host).filter((each) => each.startsWith("hostports4"))).toHaveLength(2);
});

bridgeNetworkTest(
  "the result passes through in every version; without one, or without mappings, nothing is set up",
  (network) => {
    const { host, call } = network;
    const container = network.container(2);
    expect(call(portmap, "ADD", {}, { container })).toEqual({ cniVersion: "1.1.0", ...container.result });
    const old = { cniVersion: "0.2.0", ip4: { ip: "10.88.0.2/16" }, dns: {} };
    expect(call(portmap, "ADD", { ...WEB_PORT_MAPPINGS, cniVersion: "0.2.0" }, { container, prevResult: old })).toEqual(
      old,
    );
    expect(nftElements(host)).toContain('hostports4: tcp . 8080 comment "web c1 eth0" : 10.88.0.2 . 80');
    call(portmap, "DEL", { ...WEB_PORT_MAPPINGS, cniVersion: "0.2.0" }, { container, prevResult: old });
    expect(errorOfCall(() => call(portmap, "ADD", WEB_PORT_MAPPINGS, { container, prevResult: null })).code).toBe(7);
    expect(nftElements(host)).toEqual([]);
    return Promise.resolve();
  },
);

bridgeNetworkTest("addresses of other interfaces are not published, and what cannot be is said", (network) => {
  const { host, call, log } = network;
  const container = network.container(2);
  const interfaces = [{ name: "eth0" }, { name: "eth0", sandbox: container.netns.path }, {
    name: "net1",
    sandbox: "/x",
  }];
  const prevResult = {
    cniVersion: "1.1.0",
    interfaces,
    ips: [{ address: "10.1.0.1/16", interface: 0 }, { address: "10.1.0.2/16", interface: 2 }, {
      address: "10.1.0.3/16",
      interface: 1,
    }, {
      address: "10.1.0.4/16",
    }],
  };
  const config = portMappingConfig(
    [{ hostPort: 1, containerPort: 2 }, { hostPort: 3, containerPort: 4, hostIP: "::" }],
    {
      backend: "iptables",
    },
  );
  call(portmap, "ADD", config, { container, prevResult });
  expect(nftElements(host)).toEqual([
    'hairpin4: 10.1.0.3 comment "web c1 eth0" : jump hairpin-10.1.0.0/16',
    'hostports4: tcp . 1 comment "web c1 eth0" : 10.1.0.3 . 2',
  ]);
  expect(log).toEqual([
    'portmap: backend "iptables": the ports are published by nf_tables rules of this program anyway',
    "portmap: Cannot publish host port [::]:3/tcp: the container has no address of that family",
  ]);
  return Promise.resolve();
});

bridgeNetworkTest("STATUS is content where nf_tables can be used", (network) => {
  network.call(portmap, "STATUS", {});
  expect(errorOfCall(() => network.call(portmap, "STATUS", { backend: "ipfw" })).code).toBe(7);
  return Promise.resolve();
});
