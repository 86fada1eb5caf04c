/** Another program's link in the tunnel's place: it is named, and what it sends and gets passes. */
import { expect, test } from "bun:test";
import { parseCidr, parseIp } from "../../ffi/address.ts";
import { isPingAnswered } from "../../ffi/packet/probe.ts";
import { newClusterSite, peersOf, podAddresses, type SiteNode } from "../../testing/cluster_site.ts";
import { stopClock } from "../../testing/clock.ts";
import { runShellInNetns, until } from "../../testing/netns.ts";
import { requestTcp } from "../../testing/traffic.ts";
import { ClusterNetwork } from "./cluster_network.ts";
import { DEFAULT_CLUSTER_SETTINGS } from "./settings.ts";

/** Between nodes a and b, with addresses of its own, as Calico and flannel have. */
function addForeignTunnel(a: SiteNode, b: SiteNode): void {
  for (const [own, peer] of [[a, b], [b, a]] as const) {
    const [local, remote] = [own, peer].map(({ node }) => node.addresses[0]);
    runShellInNetns(
      own.netns,
      `ip link add flannel.1 type vxlan id 1 dstport 4789 dev eth0 local ${local} remote ${remote}`,
      `ip addr add 10.99.0.${own.node.createdAtMs}/24 dev flannel.1; ip link set flannel.1 up`,
    );
  }
}

const isForeignTunnelUsable = (a: SiteNode): boolean =>
  a.netns.run<boolean>(() => isPingAnswered(parseIp("10.99.0.2"), 2000));

const rulesOf = ({ netns }: SiteNode): string => runShellInNetns(netns, "nft list table inet cni_cluster");

const IN_THE_WAY = 'Link "flannel.1" has UDP port 4789 already: remove it, or give the cluster another port';

test("with --tunnel never, another VXLAN on the port works, also where there was a tunnel", async () => {
  using site = await newClusterSite();
  const [a, b] = site.nodes as [SiteNode, SiteNode];
  expect(rulesOf(a)).toContain("udp dport 4789");
  using resources = new DisposableStack();
  for (const { node, netns } of [a, b]) {
    const settings = { ...DEFAULT_CLUSTER_SETTINGS, tunnel: "never" } as const;
    const network = resources.use(netns.run<ClusterNetwork>(() => new ClusterNetwork({ settings, log: () => {} })));
    netns.run(() => network.replace(node, peersOf(site.nodes, node.uid), []));
    expect(network.problems()).toEqual([]);
  }
  expect(runShellInNetns(a.netns, "ip link")).not.toContain("cni-vxlan");
  addForeignTunnel(a, b);
  expect(isForeignTunnelUsable(a)).toBe(true);
  expect(rulesOf(a)).not.toContain("udp");
  expect(await requestTcp(a.pod, podAddresses(b)[0]!, 80)).toBe("pod-b 10.244.1.5");
});

test("another VXLAN on the port works while it is there, and the tunnel and its guard come when it has gone", async () => {
  using site = await newClusterSite({ segments: 2 });
  const [a, b, c] = site.nodes as [SiteNode, SiteNode, SiteNode];
  expect(rulesOf(a)).toContain("goto tunnel_input");
  for (const { netns } of [a, b]) runShellInNetns(netns, "ip link del cni-vxlan");
  addForeignTunnel(a, b);
  for (const { run } of [a, b]) {
    await until(() => {
      run((network) => network.look());
      return run((network) => network.problems()).includes(IN_THE_WAY);
    });
  }
  expect(isForeignTunnelUsable(a)).toBe(true);
  expect(runShellInNetns(a.netns, "ip link")).not.toContain("cni-vxlan");
  // Node c has a tunnel, to which pods must not send.
  expect(rulesOf(a)).not.toContain("tunnel_input");
  expect(rulesOf(a)).toContain("udp dport 4789 goto tunnel_forward");
  // What changes of nodes meanwhile changes nothing of that.
  const larger = { ...c.node, podCidrs: [parseCidr("10.250.0.0/20")] };
  for (const node of [larger, c.node]) a.run((network) => network.update(new Map([[node.uid, node]])));
  expect(isForeignTunnelUsable(a)).toBe(true);
  for (const { netns } of [a, b]) runShellInNetns(netns, "ip link del flannel.1");
  {
    using clock = stopClock();
    clock.pass(6000);
    for (const { run } of [a, b]) run((network) => network.look());
  }
  expect(a.run((network) => network.problems())).toEqual([]);
  expect(rulesOf(a)).toContain("goto tunnel_input");
  expect(await requestTcp(a.pod, podAddresses(c)[0]!, 80)).toBe("pod-c 10.244.1.5");
});

test("a VXLAN on the port that comes after the tunnel takes nothing of it", async () => {
  using site = await newClusterSite({ segments: 2 });
  const [a, , c] = site.nodes as [SiteNode, SiteNode, SiteNode];
  const before = rulesOf(a);
  runShellInNetns(a.netns, "ip link add flannel.1 type vxlan id 1 dstport 4789 dev eth0");
  {
    using clock = stopClock();
    clock.pass(3 * 60_000);
    a.run((network) => network.look());
  }
  expect([rulesOf(a), a.run((network) => network.problems())]).toEqual([before, []]);
  expect(await requestTcp(a.pod, podAddresses(c)[0]!, 80)).toBe("pod-c 10.244.1.5");
});

test("other programs' links in the way are named", async () => {
  using site = await newClusterSite({ settings: { tunnel: "never" } });
  const [a, b] = site.nodes as [SiteNode, SiteNode];
  const problemsWith = (script: string) => {
    runShellInNetns(a.netns, script);
    using network = a.netns.run<ClusterNetwork>(() =>
      new ClusterNetwork({ settings: { ...DEFAULT_CLUSTER_SETTINGS, tunnel: "always" }, log: () => {} })
    );
    a.netns.run(() => network.replace(a.node, [b.node], []));
    return network.problems();
  };
  const routeless = b.node.podCidrs.map((cidr) => `Node "b" needs the tunnel: ${cidr} gets no route`);
  expect(problemsWith("ip link add cni-vxlan type bridge")).toEqual([
    'Link "cni-vxlan" is a bridge, not the tunnel between nodes: rename or remove it',
    ...routeless,
  ]);
  expect(
    problemsWith(
      "ip link del cni-vxlan; ip link add flannel.1 type vxlan id 1 dstport 4789 dev eth0 local 192.0.2.11; ip link set flannel.1 up",
    ),
  ).toEqual([
    IN_THE_WAY,
    ...routeless,
  ]);
});
