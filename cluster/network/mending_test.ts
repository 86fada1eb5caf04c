/** What others take away or change comes back, and what is others' stays. */
import { describe, expect, spyOn, test } from "bun:test";
import { ipBytes, parseCidr, parseIp } from "../../ffi/address.ts";
import { openMonitor } from "../../ffi/netlink/monitor.ts";
import { NETLINK_ROUTE } from "../../ffi/netlink/socket.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { isPingAnswered } from "../../ffi/packet/probe.ts";
import { getGenerationId } from "../../ffi/nft/objects.ts";
import { transaction } from "../../ffi/nft/transaction.ts";
import {
  RTNLGRP_IPV4_IFADDR,
  RTNLGRP_IPV4_ROUTE,
  RTNLGRP_IPV6_IFADDR,
  RTNLGRP_IPV6_ROUTE,
  RTNLGRP_LINK,
} from "../../ffi/route/uapi.ts";
import { CLUSTER_TABLE } from "../../plugins/lib/ruleset/foreign_tables.ts";
import { newClusterSite, peersOf, podAddresses, type SiteNode, type SiteOptions } from "../../testing/cluster_site.ts";
import { stopClock } from "../../testing/clock.ts";
import { runShellInNetns, until } from "../../testing/netns.ts";
import { requestTcp } from "../../testing/traffic.ts";
import { ClusterNetwork } from "./cluster_network.ts";
import { NodeRoutes } from "./node_routes.ts";
import { removeClusterNetwork } from "./remove.ts";
import { DEFAULT_CLUSTER_SETTINGS } from "./settings.ts";

/** All that the network has in the kernel, and what is beside it. Indices and counters are left out. */
function stateOf(netns: Netns): string {
  return runShellInNetns(
    netns,
    "ip -o -d link | sed 's/^[0-9]*: //; s/@if[0-9]*//' | sort",
    "ip -o addr | sed 's/^[0-9]*: //' | grep -v fe80: | sort",
    "ip route; ip -6 route | grep -v ^fe80: | sort; ip -4 rule; ip -6 rule",
    "ip neigh show nud permanent | sort",
    "nft -s list ruleset | awk '/elements = / { keep = $0; while (keep !~ /}/) { getline; keep = keep $0 } gsub(/[ \\t]+/, \" \", keep); print keep; next } { print }'",
  );
}

/** Elements come in any order. */
const sorted = (state: string) =>
  state.replace(/elements = \{ (.*) \}/g, (_, all: string) => all.split(/, */).sort().join(" "));

async function settle(node: SiteNode, wanted: string): Promise<void> {
  const state = () => sorted(stateOf(node.netns));
  try {
    await until(() => {
      node.run((network) => network.look());
      return state() === wanted;
    });
  } catch (error) {
    // It shows what differs.
    expect(`${state()}\n${node.logged.join("\n")}`).toBe(wanted);
    throw error;
  }
}

const BOTH: SiteOptions = { segments: 2 };

describe("is mended by a look:", () => {
  test.each([
    ["all routes flushed", "ip route flush proto 67; ip -6 route flush proto 67"],
    ["one route deleted", "ip route del 10.244.2.0/24"],
    ["a route changed", "ip route replace 10.244.2.0/24 via 192.0.2.1 proto 67"],
    ["a route of ours to nowhere known", "ip route add 10.99.0.0/24 via 192.0.2.1 proto 67"],
    ["the refusal of the own range deleted", "ip route del unreachable 10.244.1.0/24 metric 1000000000"],
    ["a second route of ours", "ip route add 10.244.2.0/24 via 192.0.2.1 proto 67 metric 5"],
    ["the tunnel deleted", "ip link del cni-vxlan"],
    [
      "the tunnel deleted, where new links have no IPv6",
      "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6; ip link del cni-vxlan",
    ],
    ["the tunnel down", "ip link set cni-vxlan down"],
    ["the tunnel with another MAC address", "ip link set cni-vxlan address 0a:00:00:00:00:01"],
    ["the tunnel with another MTU", "ip link set cni-vxlan mtu 1300"],
    ["the tunnel's addresses deleted", "ip addr flush dev cni-vxlan scope global"],
    ["neighbours deleted", "ip neigh flush dev cni-vxlan nud permanent"],
    ["a neighbour changed", "ip neigh replace 10.244.3.0 lladdr 0a:00:00:00:00:01 dev cni-vxlan nud permanent"],
    ["a neighbour too many", "ip neigh replace 10.244.9.0 lladdr 0a:00:00:00:00:01 dev cni-vxlan nud permanent"],
    ["the ruleset flushed", "nft flush ruleset"],
    ["the table deleted", "nft delete table inet cni_cluster"],
    ["a chain flushed", "nft flush chain inet cni_cluster tunnel_input"],
    ["a rule too many", "nft insert rule inet cni_cluster tunnel_input accept"],
    ["elements deleted", "nft flush set inet cni_cluster tunnel44; nft flush set inet cni_cluster cluster6"],
    ["an element too many", "nft add element inet cni_cluster nodes4 { 192.0.2.99 }"],
    ["ranges too many", "nft add element inet cni_cluster cluster4 { 10.99.0.0/24, 10.99.2.0/24 }"],
  ])("%s", async (_, script) => {
    using site = await newClusterSite(BOTH);
    const [a] = site.nodes as [SiteNode];
    const before = sorted(stateOf(a.netns));
    a.run((network) => network.look());
    runShellInNetns(a.netns, script);
    expect(sorted(stateOf(a.netns))).not.toBe(before);
    await settle(a, before);
    expect(a.run((network) => network.problems())).toEqual([]);
    expect(a.logged.at(-1)).toStartWith("Mended the network between nodes: ");
  });

  test("after a few minutes, what nobody has told of", async () => {
    using site = await newClusterSite(BOTH);
    const [a] = site.nodes as [SiteNode];
    const strict = "/proc/sys/net/ipv4/conf/cni-vxlan/rp_filter";
    const before = sorted(stateOf(a.netns));
    a.run((network) => network.look());
    runShellInNetns(a.netns, `echo 1 >${strict}`);
    const ofOthers = { set: "nodes4", key: ipBytes(parseIp("192.0.2.99")) };
    // Changes of this process tell nobody of anything.
    transaction(a.netns.nft).addElements(CLUSTER_TABLE, ofOthers.set, [ofOthers]).commit();
    a.run((network) => network.look());
    expect(sorted(stateOf(a.netns))).not.toBe(before);
    using clock = stopClock();
    clock.pass(3 * 60_000);
    a.run((network) => network.look());
    expect(sorted(stateOf(a.netns))).toBe(before);
    expect(runShellInNetns(a.netns, `cat ${strict}`)).toBe("2\n");
    expect(a.logged).toEqual(["Mended the network between nodes: 1 elements differed, the tunnel's state"]);
  });

  test("soon after the tunnel was made, what udev sets of new links", async () => {
    using site = await newClusterSite(BOTH);
    const [a] = site.nodes as [SiteNode];
    const strict = "/proc/sys/net/ipv4/conf/cni-vxlan/rp_filter";
    using clock = stopClock();
    const lookLater = (ms: number) => {
      clock.pass(ms);
      a.run((network) => network.look());
    };
    // What the making of the site has changed is compared.
    lookLater(4000);
    lookLater(4000);
    runShellInNetns(a.netns, "ip link del cni-vxlan");
    lookLater(4000);
    lookLater(0);
    runShellInNetns(a.netns, `echo 1 >${strict}`);
    lookLater(3000);
    expect(runShellInNetns(a.netns, `cat ${strict}`)).toBe("1\n");
    lookLater(2000);
    expect(runShellInNetns(a.netns, `cat ${strict}`)).toBe("2\n");
    expect(a.logged.at(-1)).toBe("Mended the network between nodes: the tunnel's state");
  });

  test("the uplink down and up again", async () => {
    using site = await newClusterSite(BOTH);
    const [a] = site.nodes as [SiteNode];
    const before = sorted(stateOf(a.netns));
    runShellInNetns(a.netns, "ip link set eth0 down");
    await until(() => {
      a.run((network) => network.look());
      return runShellInNetns(a.netns, "ip route show 10.244.2.0/24").includes("encap");
    });
    // Pods would get another one twice.
    expect(a.run((network) => network.mtu)).toBe(1450);
    runShellInNetns(
      a.netns,
      "ip link set eth0 up; ip route add default via 192.0.2.1",
      "ip addr replace 2001:db8:1::11/64 dev eth0 nodad; ip -6 route replace default via 2001:db8:1::1 metric 1024",
    );
    await settle(a, before);
  });

  test("the own address lost: routes without it are compared once", async () => {
    using site = await newClusterSite(BOTH);
    const [a] = site.nodes as [SiteNode];
    expect(a.run((network) => network.takeAddressLoss())).toBe(false);
    runShellInNetns(a.netns, "ip addr del 192.0.2.11/24 dev eth0; ip addr add 192.0.2.21/24 dev eth0");
    runShellInNetns(a.netns, "ip route replace default via 192.0.2.1");
    await until(() => {
      a.run((network) => network.look());
      return a.logged.length > 0;
    });
    expect(a.run((network) => network.takeAddressLoss())).toBe(true);
    expect(a.run((network) => network.problems())).toEqual([
      "This node's address 192.0.2.11 is on none of its links, so other nodes drop what it sends by the tunnel: " +
      "look at the links, and at --node-ip of the kubelet",
    ]);
    expect(a.run((network) => network.takeAddressLoss())).toBe(false);
    const { length } = a.logged;
    runShellInNetns(a.netns, "ip route del 10.244.3.0/24");
    await until(() => {
      a.run((network) => network.look());
      return a.logged.length > length;
    });
    expect(a.logged.at(-1)).toBe("Mended the network between nodes: 1 routes");
  });

  test("a link on which a node is appears and goes: direct and tunnelled routes change places", async () => {
    using site = await newClusterSite(BOTH);
    const [a, , c] = site.nodes as [SiteNode, SiteNode, SiteNode];
    const before = sorted(stateOf(a.netns));
    // It contains this node's address, too.
    runShellInNetns(a.netns, "ip route add 192.0.0.0/5 dev eth0");
    await until(() => {
      a.run((network) => network.look());
      return runShellInNetns(a.netns, "ip route show 10.244.3.0/24").includes("via 198.51.100.13 dev eth0");
    });
    runShellInNetns(a.netns, "ip route del 192.0.0.0/5 dev eth0");
    await settle(a, before);
    expect(await requestTcp(a.pod, podAddresses(c)[0]!, 80)).toBe("pod-c 10.244.1.5");
  });
});

test("a node that starts again, with the same nodes, changes nothing in the kernel", async () => {
  using site = await newClusterSite(BOTH);
  const [a] = site.nodes as [SiteNode];
  const groups = [
    RTNLGRP_LINK,
    RTNLGRP_IPV4_IFADDR,
    RTNLGRP_IPV4_ROUTE,
    RTNLGRP_IPV6_IFADDR,
    RTNLGRP_IPV6_ROUTE,
  ];
  using monitor = a.netns.run(() => openMonitor(NETLINK_ROUTE, groups, 1 << 20) as never) as ReturnType<
    typeof openMonitor
  >;
  const generation = getGenerationId(a.netns.nft);
  using again = a.netns.run<ClusterNetwork>(() =>
    new ClusterNetwork({ settings: DEFAULT_CLUSTER_SETTINGS, log: () => {} })
  );
  a.netns.run(() => again.replace(a.node, peersOf(site.nodes, a.node.uid), []));
  const requested: number[] = [];
  // The kernel's own changes, such as a link-local address that becomes usable, have no port.
  monitor.read(({ type, portId }) => void (portId !== 0 && requested.push(type)));
  expect(requested).toEqual([]);
  expect(getGenerationId(a.netns.nft)).toBe(generation);
});

test("routes of other programs stay, and are named; ours come when they go", async () => {
  using site = await newClusterSite(BOTH);
  const [a] = site.nodes as [SiteNode];
  const before = sorted(stateOf(a.netns));
  a.run((network) => network.replace(a.node, [], []));
  runShellInNetns(
    a.netns,
    "ip route add 10.244.2.0/24 via 192.0.2.1 proto 12; ip -6 route add fd00:3::/64 via 2001:db8:1::1 proto 12",
  );
  const foreign = stateOf(a.netns);
  a.run((network) => network.replace(a.node, peersOf(site.nodes, a.node.uid), []));
  expect(a.run((network) => network.problems())).toEqual([
    "The route to 10.244.2.0/24 via 192.0.2.1 (protocol 12) is another program's, and stays: the cluster's is via 192.0.2.12 (protocol 67)",
    "The route to fd00:3::/64 via 2001:db8:1::1 (protocol 12) is another program's, and stays: the cluster's is via fe80::cc2:c6ff:fe33:640d (protocol 67)",
  ]);
  const routes = runShellInNetns(a.netns, "ip route; ip -6 route");
  expect(routes).toContain("10.244.2.0/24 via 192.0.2.1 dev eth0 proto bird");
  expect(routes).toContain("10.244.3.0/24  encap");
  a.run((network) => network.replace(a.node, [], []));
  expect(stateOf(a.netns)).toBe(foreign);
  // One after the other, as they are found by an update, too.
  for (const peer of peersOf(site.nodes, a.node.uid)) a.run((network) => network.update(new Map([[peer.uid, peer]])));
  expect(a.run((network) => network.problems())).toHaveLength(2);
  runShellInNetns(a.netns, "ip route flush proto 12; ip -6 route flush proto 12");
  await settle(a, before);
  expect(a.run((network) => network.problems())).toEqual([]);
});

test("a route that another program has replaced meanwhile stays, whatever changes of its node", async () => {
  using site = await newClusterSite(BOTH);
  const [a, b] = site.nodes as [SiteNode, SiteNode];
  runShellInNetns(
    a.netns,
    "ip route replace 10.244.2.0/24 via 192.0.2.1 proto 12",
    "ip -6 route replace fd00:2::/64 via 2001:db8:1::1 proto 12",
  );
  const moved = { ...b.node, addresses: [parseIp("192.0.2.44"), parseIp("2001:db8:1::44")] };
  a.run((network) => network.update(new Map([[b.node.uid, moved]])));
  const routes = () => runShellInNetns(a.netns, "ip route show 10.244.2.0/24; ip -6 route show fd00:2::/64");
  expect(routes()).toMatch(/^10\.244\.2\.0\/24 via 192\.0\.2\.1 .*bird.*\n.* via 2001:db8:1::1 .*bird.*\n$/);
  expect(a.run((network) => network.problems())).toHaveLength(2);
  runShellInNetns(a.netns, "ip route flush proto 12; ip -6 route flush proto 12");
  await until(() => {
    a.run((network) => network.look());
    return routes().split("proto 67").length === 3;
  });
  expect(routes()).toMatch(/via 192\.0\.2\.44 .*\n.* via 2001:db8:1::44 /);
});

test("routes of other programs are compared seldom, and when they go, also with their link or nexthop", async () => {
  using site = await newClusterSite(BOTH);
  const [a] = site.nodes as [SiteNode];
  a.run((network) => network.replace(a.node, [], []));
  runShellInNetns(
    a.netns,
    "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6; ip link add old type veth peer name old-peer; ip link set old up; ip link set old-peer up",
    "ip nexthop add id 7 dev old",
    "ip route add 10.244.2.0/24 dev old; ip route add 10.244.3.0/24 nhid 7",
  );
  a.run((network) => network.replace(a.node, peersOf(site.nodes, a.node.uid), []));
  expect(a.run((network) => network.problems())).toHaveLength(2);
  const comparisons = spyOn(NodeRoutes.prototype, "sync");
  const now = performance.now.bind(performance);
  let laterMs = 0;
  const clock = spyOn(performance, "now").mockImplementation(() => now() + laterMs);
  using _spies = { [Symbol.dispose]: () => [comparisons, clock].forEach((spy) => spy.mockRestore()) };
  // The first look hears of the changes above.
  for (const stepMs of [10_000, ...Array<number>(10).fill(2500)]) {
    laterMs += stepMs;
    a.run((network) => network.look());
  }
  expect(comparisons.mock.calls.length).toBeLessThanOrEqual(1);
  // The kernel does not tell of routes of IPv4 that go with their nexthop object, or with their link.
  runShellInNetns(a.netns, "ip nexthop del id 7");
  laterMs += 30_000;
  a.run((network) => network.look());
  expect(runShellInNetns(a.netns, "ip route show 10.244.3.0/24")).toContain("proto 67");
  expect(a.run((network) => network.problems())).toHaveLength(1);
  runShellInNetns(a.netns, "ip link del old");
  await until(() => {
    a.run((network) => network.look());
    return a.run((network) => network.problems()).length === 0;
  });
  expect(runShellInNetns(a.netns, "ip route show 10.244.2.0/24")).toContain("via 192.0.2.12 dev eth0");
});

test("removeClusterNetwork() leaves what was there before, and nothing else", async () => {
  using site = await newClusterSite(BOTH);
  const [a] = site.nodes as [SiteNode];
  const remove = () => a.netns.run(() => removeClusterNetwork((line) => void lines.push(line)));
  const lines: string[] = [];
  const others =
    "nft add table inet other; ip rule add from 10.0.0.9 lookup 100; ip route add 10.98.0.0/16 via 192.0.2.1";
  runShellInNetns(a.netns, others);
  remove();
  expect(lines).toEqual([
    "Removed 6 routes of the network between nodes",
    'Removed the tunnel between nodes, "cni-vxlan"',
    "Removed the rules of the network between nodes",
  ]);
  const without = stateOf(a.netns);
  expect(without).not.toMatch(/cni|proto 67|10\.244\.[023]\.|fd00:[23]:/);
  expect(without).toContain("10.98.0.0/16");
  a.run((network) => network.replace(a.node, peersOf(site.nodes, a.node.uid), []));
  expect(stateOf(a.netns)).not.toBe(without);
  remove();
  expect(stateOf(a.netns)).toBe(without);
  remove();
  expect(lines).toHaveLength(6);
});

describe("update()", () => {
  test("leaves the kernel as replace() does, whatever changes of a node", async () => {
    using site = await newClusterSite(BOTH);
    const [a, b, c] = site.nodes.map(({ node }) => node) as [SiteNode["node"], SiteNode["node"], SiteNode["node"]];
    const { netns, run } = site.nodes[0]!;
    const moved = { ...b, addresses: [parseIp("198.51.100.44"), parseIp("2001:db8:2::44")] };
    const again = { ...c, uid: "uid-c2" };
    const larger = { ...c, podCidrs: [parseCidr("10.250.0.0/20"), parseCidr("fd00:50::/56")] };
    const steps: [string, SiteNode["node"] | undefined][][] = [
      [[b.uid, moved]],
      [[b.uid, { ...b, podCidrs: [b.podCidrs[1]!] }]],
      [[b.uid, { ...b, addresses: [b.addresses[1]!] }]],
      [[b.uid, { ...b, addresses: [] }]],
      [[b.uid, undefined]],
      [[again.uid, again]],
      [[c.uid, undefined]],
      [[again.uid, undefined]],
      [[c.uid, larger]],
      [[b.uid, b]],
      [[c.uid, c]],
      [[b.uid, { ...b, podCidrs: c.podCidrs }], [c.uid, { ...c, podCidrs: b.podCidrs }]],
      [[b.uid, moved], [c.uid, undefined], [again.uid, again]],
      [[again.uid, undefined], [b.uid, undefined], [c.uid, larger]],
      [[b.uid, b], [c.uid, c]],
    ];
    const present = new Map([b, c].map((node) => [node.uid, node]));
    for (const step of steps) {
      run((network) => network.update(new Map(step)));
      for (const [uid, node] of step) {
        if (node) present.set(uid, node);
        else present.delete(uid);
      }
      const updated = sorted(stateOf(netns));
      const problems = run((network) => network.problems());
      using fresh = netns.run<ClusterNetwork>(() =>
        new ClusterNetwork({ settings: DEFAULT_CLUSTER_SETTINGS, log: () => {} })
      );
      netns.run(() => fresh.replace(a, present.values(), []));
      expect(sorted(stateOf(netns)).replace(/.*0xffff.*accept\n/g, "")).toBe(
        updated.replace(/.*0xffff.*accept\n/g, ""),
      );
      expect(fresh.problems()).toEqual(problems);
    }
  });

  test("does nothing for a node that has not changed", async () => {
    using site = await newClusterSite(BOTH);
    const [a, b] = site.nodes as [SiteNode, SiteNode];
    const generation = getGenerationId(a.netns.nft);
    a.run((network) => network.update(new Map([[b.node.uid, { ...b.node, createdAtMs: 5 }]])));
    a.run((network) => network.update(new Map([["nobody", undefined]])));
    expect(getGenerationId(a.netns.nft)).toBe(generation);
  });
});

test("the MTU is that of the narrowest way to a peer", async () => {
  using site = await newClusterSite(BOTH);
  const [a, b, c] = site.nodes as [SiteNode, SiteNode, SiteNode];
  const mtuOf = (peers: SiteNode[]) => {
    a.run((network) => network.replace(a.node, peers.map(({ node }) => node), []));
    expect(runShellInNetns(a.netns, "ip link show cni-vxlan")).toContain(`mtu ${a.network.mtu} `);
    return a.run((network) => network.mtu);
  };
  expect([mtuOf([]), mtuOf([b]), mtuOf([b, c])]).toEqual([1500, 1500, 1450]);
  expect(mtuOf([{ ...c, node: { ...c.node, addresses: [c.node.addresses[1]!] } }])).toBe(1430);
  runShellInNetns(a.netns, "ip route add 198.51.100.0/24 via 192.0.2.1 mtu 1400");
  expect(mtuOf([b, c])).toBe(1350);
  runShellInNetns(a.netns, "ip link set eth0 mtu 1320");
  await until(() => {
    a.run((network) => network.look());
    return a.run((network) => network.mtu) === 1320;
  });
});

test("with an uplink of the least MTU of IPv6, pods keep IPv6, and send as much by the tunnel", async () => {
  using site = await newClusterSite(BOTH);
  const [a, , c] = site.nodes as [SiteNode, SiteNode, SiteNode];
  for (const { netns, run } of [a, c]) {
    runShellInNetns(netns, "ip link set eth0 mtu 1280");
    await until(() => {
      run((network) => network.look());
      return run((network) => network.mtu) < 1450;
    });
    expect(run((network) => network.mtu)).toBe(1280);
    expect(runShellInNetns(netns, "ip -6 addr show dev cni-vxlan scope global")).toContain("fd00:");
  }
  for (const address of podAddresses(c)) {
    expect(a.pod.run(() => isPingAnswered(parseIp(address), 2000, { bytes: 1280 }) as never)).toBe(true as never);
  }
});

test("two nodes with one address keep a neighbour of the tunnel until both are gone", async () => {
  using site = await newClusterSite(BOTH);
  const [a, , c] = site.nodes as [SiteNode, SiteNode, SiteNode];
  const old = { ...c.node, uid: "uid-old", name: "old", podCidrs: [parseCidr("fd00:44::/64")] };
  const neighbours = () => runShellInNetns(a.netns, "ip -6 neigh show dev cni-vxlan nud permanent");
  const before = neighbours();
  expect(before).toContain("fe80::");
  a.run((network) => network.update(new Map([[old.uid, old]])));
  a.run((network) => network.update(new Map([[old.uid, undefined]])));
  expect(neighbours()).toBe(before);
  a.run((network) => network.update(new Map([[c.node.uid, undefined]])));
  expect(neighbours()).toBe("");
});

test("an own address that changes moves routes, the tunnel and what others accept", async () => {
  using site = await newClusterSite(BOTH);
  const [a, b, c] = site.nodes as [SiteNode, SiteNode, SiteNode];
  runShellInNetns(
    a.netns,
    "ip addr add 192.0.2.77/24 dev eth0; ip addr del 192.0.2.11/24 dev eth0; ip addr add 192.0.2.77/24 dev eth0 2>/dev/null || true",
    "ip route replace default via 192.0.2.1",
  );
  const node = { ...a.node, addresses: [parseIp("192.0.2.77"), a.node.addresses[1]!] };
  a.run((network) => network.replace(node, [b.node, c.node], []));
  for (const { run } of [b, c]) run((network) => network.update(new Map([[node.uid, node]])));
  expect(a.run((network) => network.problems())).toEqual([]);
  for (const { pod, node: { name } } of [b, c]) {
    expect(await requestTcp(pod, "10.244.1.5", 80)).toStartWith("pod-a 10.244.");
    expect(await requestTcp(a.pod, name === "b" ? "10.244.2.5" : "10.244.3.5", 80)).toBe(`pod-${name} 10.244.1.5`);
  }
});

test("pods with addresses of a former range reach the outside and other nodes under their node's address", async () => {
  using site = await newClusterSite({});
  const [a, b] = site.nodes as [SiteNode, SiteNode];
  const moved = { ...a.node, podCidrs: [parseCidr("10.244.8.0/24"), parseCidr("fd00:8::/64")] };
  a.run((network) => network.replace(moved, peersOf(site.nodes, a.node.uid), a.node.podCidrs));
  b.run((network) => network.update(new Map([[moved.uid, moved]])));
  expect(await requestTcp(a.pod, "203.0.113.1", 80)).toBe("outside 192.0.2.11");
  expect(await requestTcp(a.pod, "10.244.2.5", 80)).toBe("pod-b 192.0.2.11");
  expect(await requestTcp(a.pod, "fd00:2::5", 80)).toBe("pod-b 2001:db8:1::11");
});
