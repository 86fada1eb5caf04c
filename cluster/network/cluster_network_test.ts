import { describe, expect, test } from "bun:test";
import { familyOf, hostPrefix, type Ip, parseIp } from "../../ffi/address.ts";
import { isPingAnswered, tryTcpConnection } from "../../ffi/packet/probe.ts";
import {
  type ClusterSite,
  newClusterSite,
  peersOf,
  podAddresses,
  type SiteNode,
  type SiteOptions,
} from "../../testing/cluster_site.ts";
import { listTrackedFlows } from "../../testing/tracked_flows.ts";
import { runShellInNetns, until } from "../../testing/netns.ts";
import { ClusterNetwork } from "./cluster_network.ts";
import { DEFAULT_CLUSTER_SETTINGS } from "./settings.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, requestUdp } from "../../testing/traffic.ts";

const OUTSIDE = { 4: "203.0.113.1", 6: "2001:db8:ff::1" };

/** Who answers and whom it sees, for each pair and family, where that is not what is expected. */
async function wrongAnswers(site: ClusterSite, sourceOf: (from: SiteNode, to: SiteNode, family: 4 | 6) => string) {
  const pairs = site.nodes.flatMap((from) => site.nodes.flatMap((to) => from === to ? [] : [{ from, to }]));
  const wrong: string[] = [];
  for (const { from, to } of pairs) {
    for (const [i, target] of podAddresses(to).entries()) {
      const family = familyOf(target as Ip);
      const calls = [
        { netns: from.pod, expected: `pod-${to.node.name} ${podAddresses(from)[i]}` },
        { netns: from.netns, expected: `pod-${to.node.name} ${sourceOf(from, to, family)}` },
      ];
      for (const { netns, expected } of calls) {
        const answers = [await requestTcp(netns, target, 80, 2000), await requestUdp(netns, target, 53, 2000)];
        for (const answer of answers) if (answer !== expected) wrong.push(`${answer}, expected ${expected}`);
      }
    }
  }
  for (const { pod, node } of site.nodes) {
    for (const ip of node.addresses) {
      if (node.podCidrs.every((cidr) => familyOf(cidr) !== familyOf(ip))) continue;
      const answer = await requestTcp(pod, OUTSIDE[familyOf(ip)], 80, 2000);
      if (answer !== `outside ${ip}`) wrong.push(`${answer}, expected outside ${ip}`);
    }
  }
  return wrong;
}

/** On one link, the node's address; else the one that the tunnel has in its range. */
const sourceOnLink = ({ node }: SiteNode, family: 4 | 6) => node.addresses.find((ip) => familyOf(ip) === family)!;
const sourceInTunnel = ({ node }: SiteNode, family: 4 | 6) =>
  node.podCidrs.find((cidr) => familyOf(cidr) === family)!.replace(/\/.*/, "");

const CASES: [string, SiteOptions, (from: SiteNode, to: SiteNode, family: 4 | 6) => string][] = [
  ["directly", {}, (from, _, family) => sourceOnLink(from, family)],
  ["by the tunnel", { settings: { tunnel: "always" } }, (from, _, family) => sourceInTunnel(from, family)],
  [
    "directly on a link, by the tunnel over a router",
    { segments: 2 },
    (from, to, family) =>
      (from.node.name === "c") === (to.node.name === "c") ? sourceOnLink(from, family) : sourceInTunnel(from, family),
  ],
];

describe.each(CASES)("nodes and pods reach pods %s, which see who calls", (_, options, sourceOf) => {
  test.each([0, 1, 2] as const)("with rp_filter %d", async (rpFilter) => {
    using site = await newClusterSite({ ...options, rpFilter });
    expect(site.nodes.flatMap(({ network }) => network.problems())).toEqual([]);
    expect(await wrongAnswers(site, sourceOf)).toEqual([]);
  });

  test.each([0, 1, 2] as const)(
    "from outside by the port of a node that masquerades, with rp_filter %d",
    async (rpFilter) => {
      using site = await newClusterSite({ ...options, rpFilter });
      const [a, b, c] = site.nodes as [SiteNode, SiteNode, SiteNode];
      // As kube-proxy does, where the client's address is not to be kept.
      runShellInNetns(
        a.netns,
        "nft 'add table inet services; add chain inet services from { type nat hook postrouting priority srcnat; }'",
        "nft add rule inet services from ct status dnat masquerade",
        "nft 'add chain inet services to { type nat hook prerouting priority dstnat; }'",
        ...[b, c].flatMap((node, i) =>
          podAddresses(node).map((address) => {
            const [word, to] = familyOf(address as Ip) === 4 ? ["ip", address] : ["ip6", `[${address}]`];
            return `nft add rule inet services to meta nfproto ipv${
              word === "ip" ? 4 : 6
            } tcp dport 3000${i} dnat ${word} to ${to}:80
            nft add rule inet services to meta nfproto ipv${
              word === "ip" ? 4 : 6
            } udp dport 3000${i} dnat ${word} to ${to}:53`;
          })
        ),
      );
      for (const [i, to] of [b, c].entries()) {
        for (const ip of a.node.addresses) {
          const answers = [
            await requestTcp(site.router, ip, 30000 + i, 2000),
            await requestUdp(site.router, ip, 30000 + i, 2000),
          ];
          const expected = `pod-${to.node.name} ${sourceOf(a, to, familyOf(ip))}`;
          expect(answers).toEqual([expected, expected]);
        }
      }
    },
  );
});

test("nodes whose ranges and addresses of IPv6 come first reach each other", async () => {
  using site = await newClusterSite({ segments: 2, families: [6, 4] });
  expect(site.nodes.flatMap(({ network }) => network.problems())).toEqual([]);
  expect(await wrongAnswers(site, CASES.at(-1)![2])).toEqual([]);
});

test("the tunnel has the identifier and the port of the settings in what it sends", async () => {
  using site = await newClusterSite({ settings: { tunnel: "always", vni: 77, port: 8473 } });
  const [a, b] = site.nodes as [SiteNode, SiteNode];
  expect(await wrongAnswers(site, (from, _, family) => sourceInTunnel(from, family))).toEqual([]);
  runShellInNetns(
    site.router,
    "nft 'add table bridge seen; add chain bridge seen forward { type filter hook forward priority 0; }'",
    "nft add rule bridge seen forward udp dport 8473 @th,96,24 77 counter",
  );
  expect(await requestTcp(a.pod, podAddresses(b)[0]!, 80, 2000)).toStartWith("pod-b");
  expect(runShellInNetns(site.router, "nft list chain bridge seen forward")).toMatch(/packets [1-9]/);
});

test.each([[4, 1450], [6, 1430]] as const)(
  "pods' largest packets fill the links under the tunnel over IPv%d, and none is fragmented",
  async (underlay, mtu) => {
    using site = await newClusterSite({ segments: 2, underlay: [underlay] });
    const [a, , c] = site.nodes as [SiteNode, SiteNode, SiteNode];
    expect(a.network.mtu).toBe(mtu);
    const isAnswered = (address: string, bytes: number, timeoutMs: number) =>
      a.pod.run(() => isPingAnswered(parseIp(address), timeoutMs, { bytes }) as never) as boolean;
    for (const address of podAddresses(c)) {
      expect(isAnswered(address, mtu, 2000)).toBe(true);
      expect(isAnswered(address, mtu + 1, NO_ANSWER_TIMEOUT_MS)).toBe(false);
    }
    for (const { netns } of [a, c]) {
      // Packets of the tunnel that are too large would be cut.
      const made = runShellInNetns(netns, "grep FragCreates /proc/net/snmp6; nstat -asz IpFragCreates");
      expect(made.match(/FragCreates\s+\d+/g)?.map((each) => each.replace(/\s+/, " "))).toEqual([
        "FragCreates 0",
        "FragCreates 0",
      ]);
    }
  },
);

test("destinations that are not masqueraded see the addresses of pods", async () => {
  const cidrs = Object.values(OUTSIDE).map((ip) => hostPrefix(parseIp(ip)));
  using site = await newClusterSite({ settings: { nonMasqueradeCidrs: cidrs } });
  const [a] = site.nodes as [SiteNode];
  runShellInNetns(
    site.router,
    ...a.node.podCidrs.map((cidr, i) => `ip route add ${cidr} via ${a.node.addresses[i]}`),
  );
  for (const [i, address] of podAddresses(a).entries()) {
    const outside = Object.values(OUTSIDE)[i]!;
    expect(await requestTcp(a.pod, outside, 80, 2000)).toBe(`outside ${address}`);
    // The other address of the router is none of them.
    expect(await requestTcp(a.pod, ["192.0.2.1", "2001:db8:1::1"][i]!, 80, 2000)).toBe(
      `outside ${a.node.addresses[i]}`,
    );
  }
});

test("pods of both families reach each other over nodes with IPv6 addresses", async () => {
  using site = await newClusterSite({ segments: 2, underlay: [6] });
  expect(site.nodes.flatMap(({ network }) => network.problems())).toEqual([]);
  const source = (from: SiteNode, to: SiteNode, family: 4 | 6) =>
    family === 6 && (from.node.name === "c") === (to.node.name === "c")
      ? sourceOnLink(from, family)
      : sourceInTunnel(from, family);
  expect(await wrongAnswers(site, source)).toEqual([]);
});

/** Node a gets a second way to the router, by which the router sends everything. @param metric of its own way there */
function addUplink({ router, nodes }: ClusterSite, metric?: number): void {
  const { netns, node } = nodes[0]!;
  const [ip4, ip6] = node.addresses;
  runShellInNetns(
    netns,
    `ip link add eth1 type veth peer name second netns ${router.path}; ip link set eth1 up`,
    "ip addr add fe80::11/64 dev eth1 nodad",
    ...metric === undefined
      ? [
        `ip route replace default src ${ip4} nexthop via 192.0.2.1 dev eth0 onlink nexthop via 198.51.100.1 dev eth1 onlink`,
        `ip -6 route append default via fe80::1 dev eth1 src ${ip6}`,
      ]
      : [
        `ip route append default via 198.51.100.1 dev eth1 onlink src ${ip4} metric ${metric}`,
        `ip -6 route append default via fe80::1 dev eth1 src ${ip6} metric ${metric}`,
      ],
  );
  runShellInNetns(
    router,
    "ip link set second master br2 up",
    `ip route replace ${ip4} dev br2; ip -6 route del ${ip6}; ip -6 route add ${ip6} via fe80::11 dev br2`,
  );
}

test("the tunnel's own packets are no connections, whatever flows in it", async () => {
  using site = await newClusterSite({ settings: { tunnel: "always" } });
  expect(await wrongAnswers(site, (from, _, family) => sourceInTunnel(from, family))).toEqual([]);
  for (const { netns, node } of site.nodes) {
    const flows = listTrackedFlows(netns);
    expect(flows).not.toBeEmpty();
    expect(flows.filter(({ destination }) => node.addresses.includes(destination))).toEqual([]);
  }
});

describe("nodes whose addresses are on lo", () => {
  test.each([0, 1, 2] as const)("reach each other by the tunnel, with rp_filter %d", async (rpFilter) => {
    using site = await newClusterSite({ segments: 2, rpFilter, addressesOn: "lo" });
    expect(site.nodes.flatMap(({ network }) => network.problems())).toEqual([]);
    expect(await wrongAnswers(site, (from, _, family) => sourceInTunnel(from, family))).toEqual([]);
    for (const { netns, network } of site.nodes) {
      expect(runShellInNetns(netns, "ip route show proto 67")).toContain("encap ip");
      expect(network.mtu).toBe(1450);
    }
  });

  test("take packets by another uplink of the same default route", async () => {
    using site = await newClusterSite({ segments: 2, addressesOn: "lo" });
    addUplink(site);
    expect(await wrongAnswers(site, (from, _, family) => sourceInTunnel(from, family))).toEqual([]);
  });

  test("take packets by an uplink that is not of the best default route, as soon as it has one", async () => {
    using site = await newClusterSite({ segments: 2, addressesOn: "lo" });
    const [a] = site.nodes as [SiteNode];
    addUplink(site, 2000);
    const uplinks = () => runShellInNetns(a.netns, "nft list set inet cni_cluster uplinks");
    const look = (isThere: boolean) =>
      until(() => {
        a.run((network) => network.look());
        return uplinks().includes('"eth1"') === isThere;
      });
    await look(true);
    expect(runShellInNetns(a.netns, "ip route get 198.51.100.13")).toContain("dev eth0");
    expect(await wrongAnswers(site, (from, _, family) => sourceInTunnel(from, family))).toEqual([]);
    runShellInNetns(a.netns, "for f in 4 6; do ip -$f route del default dev eth1; done");
    await look(false);
    expect(uplinks()).toContain('"eth0"');
    expect(a.run((network) => network.problems())).toEqual([]);
  });

  test.each(["auto", "always", "never"] as const)(
    "give pods no MTU of lo while alone, with --tunnel %s",
    async (tunnel) => {
      using site = await newClusterSite({ settings: { tunnel }, addressesOn: "lo" });
      const { node, run } = site.nodes[0]!;
      using alone = site.nodes[0]!.netns.run<ClusterNetwork>(() =>
        new ClusterNetwork({ settings: { ...DEFAULT_CLUSTER_SETTINGS, tunnel }, log: () => {} })
      );
      run(() => alone.replace(node, [], []));
      expect({ mtu: alone.mtu, isSetUp: alone.isSetUp, problems: alone.problems() }).toEqual({
        problems: [],
        mtu: tunnel === "always" ? 1450 : 1500,
        isSetUp: true,
      });
    },
  );
});

/** Node a gets a second card, on the link of node c. */
function addCard({ router, nodes }: ClusterSite): void {
  const { netns, node, run } = nodes[0]!;
  runShellInNetns(
    netns,
    `ip link add eth1 type veth peer name second netns ${router.path}; ip link set eth1 up`,
    "ip addr add 198.51.100.21/24 dev eth1; ip addr add 2001:db8:2::21/64 dev eth1 nodad",
  );
  runShellInNetns(router, "ip link set second master br2 up");
  run((network) => network.replace(node, peersOf(nodes, node.uid), []));
}

test("a second card on another node's link is used where there is no tunnel", async () => {
  using site = await newClusterSite({ segments: 2, settings: { tunnel: "never" } });
  addCard(site);
  const [a] = site.nodes as [SiteNode];
  expect(runShellInNetns(a.netns, "ip route show 10.244.3.0/24")).toContain("via 198.51.100.13 dev eth1");
});

test("a second card on another node's link: both nodes send by the tunnel, whose packets come by another card", async () => {
  using site = await newClusterSite({ segments: 2, rpFilter: 1 });
  const [a, , c] = site.nodes as [SiteNode, SiteNode, SiteNode];
  // Strict, the kernel would take nothing from node c, with the cluster's network or without.
  runShellInNetns(a.netns, "echo 2 >/proc/sys/net/ipv4/conf/all/rp_filter");
  addCard(site);
  for (const [from, range] of [[a, "10.244.3.0/24"], [c, "10.244.1.0/24"]] as const) {
    expect(runShellInNetns(from.netns, `ip route show ${range}`)).toContain("encap ip");
  }
  expect(runShellInNetns(a.netns, "ip route get 198.51.100.13")).toContain("dev eth1");
  expect(site.nodes.flatMap(({ network }) => network.problems())).toEqual([]);
  const isTunnelled = (from: SiteNode, to: SiteNode) => (from.node.name === "c") !== (to.node.name === "c");
  expect(
    await wrongAnswers(
      site,
      (from, to, family) => isTunnelled(from, to) ? sourceInTunnel(from, family) : sourceOnLink(from, family),
    ),
  ).toEqual([]);
});

test("packets to addresses that no pod of the node has end there, and a bridge with the range has its own", async () => {
  using site = await newClusterSite();
  const [a, b] = site.nodes as [SiteNode, SiteNode];
  const absent = ["10.244.1.99", "fd00:1::99"].map(parseIp);
  runShellInNetns(
    site.router,
    // As a cloud's router that knows the ranges: packets that came back to it would go round in a circle.
    "ip route add 10.244.1.0/24 via 192.0.2.11; ip route add fd00:1::/64 via 2001:db8:1::11",
    "nft 'add table inet seen; add chain inet seen forward { type filter hook forward priority 0; }'",
    "nft add rule inet seen forward ip daddr 10.244.1.99 counter; nft add rule inet seen forward ip6 daddr fd00:1::99 counter",
  );
  for (const ip of absent) {
    expect(b.pod.run<string>(() => tryTcpConnection(ip, 80, 3000))).toBe("unreachable");
  }
  expect(runShellInNetns(site.router, "nft list chain inet seen forward").match(/packets \d+/g)).toEqual([
    "packets 0",
    "packets 0",
  ]);
  runShellInNetns(
    a.netns,
    "ip link add pods0 type bridge; ip link set pods0 up",
    "ip addr add 10.244.1.1/24 dev pods0; ip addr add fd00:1::1/64 dev pods0 nodad",
  );
  a.run((network) => network.look());
  a.run((network) => network.replace(a.node, peersOf(site.nodes, a.node.uid), []));
  expect(a.run((network) => network.problems())).toEqual([]);
  expect(a.logged).toEqual([]);
  for (const ip of absent) expect(runShellInNetns(a.netns, `ip route get ${ip}`)).toContain("dev pods0");
  expect(await requestTcp(b.pod, podAddresses(a)[0]!, 80)).toBe("pod-a 10.244.2.5");
});
