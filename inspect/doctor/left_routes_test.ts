/** Direct routes between nodes that another program has left. */
import { expect, test } from "bun:test";
import { ownIdentity } from "../../ffi/sys/process_identity.ts";
import { newClusterSite, peersOf, type SiteNode } from "../../testing/cluster_site.ts";
import { runShellInNetns, until } from "../../testing/netns.ts";
import { describeNodes } from "./checks/cluster.ts";
import { isBroken } from "./examine.ts";

const routesOf = ({ netns }: SiteNode): string =>
  runShellInNetns(netns, "(ip -N route show root 10.244.0.0/16; ip -N -6 route show root fd00::/16) | sort");

/** What doctor says while the part runs. */
const describe = (node: SiteNode) =>
  describeNodes({
    ...node.run((network) => ({ problems: network.problems(), leftRoutes: network.leftRoutes() })),
    node: node.node.name,
    isSynced: true,
    nodes: 2,
    mtu: 1450,
    process: ownIdentity(),
    writtenAtMs: Date.now(),
  }).filter(isBroken);

test("the command for a left route has the cluster's own take its place", async () => {
  using site = await newClusterSite({ segments: 2 });
  const [a] = site.nodes as [SiteNode];
  const before = routesOf(a);
  expect(before).toContain("via 192.0.2.12 dev eth0 proto 67");
  a.run((network) => network.replace(a.node, [], []));
  runShellInNetns(
    a.netns,
    "ip route add 10.244.2.0/24 via 192.0.2.12 proto boot; ip -6 route add fd00:2::/64 via 2001:db8:1::12 proto boot",
  );
  a.run((network) => network.replace(a.node, peersOf(site.nodes, a.node.uid), []));
  const found = describe(a);
  const left = "ip route del 10.244.2.0/24 via 192.0.2.12 dev eth0 proto boot";
  const left6 = "ip -6 route del fd00:2::/64 via 2001:db8:1::12 dev eth0 proto boot";
  expect(found.map(({ mend, mayDisconnect }) => [mend, mayDisconnect])).toEqual([[left, true], [left6, true]]);
  for (const { mend = "" } of found) runShellInNetns(a.netns, mend);
  await until(() => {
    a.run((network) => network.look());
    return describe(a).length === 0 && routesOf(a) === before;
  });
});

test.each([
  "10.244.2.0/24 via 192.0.2.1 proto boot",
  "10.244.2.0/24 via 192.0.2.12 proto bird",
  "10.244.3.0/24 via 192.0.2.1 proto boot",
  "10.244.2.0/24 nexthop via 192.0.2.12 nexthop via 192.0.2.1",
])("%s leads elsewhere, or is somebody's: no command removes it", async (route) => {
  using site = await newClusterSite({ segments: 2 });
  const [a] = site.nodes as [SiteNode];
  a.run((network) => network.replace(a.node, [], []));
  runShellInNetns(a.netns, `ip route add ${route}`);
  a.run((network) => network.replace(a.node, peersOf(site.nodes, a.node.uid), []));
  expect(describe(a).map(({ what, mend }) => [what.slice(0, 26), mend])).toEqual([
    [`The route to ${route.slice(0, 13)}`, undefined],
  ]);
});
