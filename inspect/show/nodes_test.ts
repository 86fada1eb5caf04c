import { expect, test } from "bun:test";
import { newClusterSite, type SiteNode } from "../../testing/cluster_site.ts";
import { runShellInNetns } from "../../testing/netns.ts";
import { listNamespaceLinks } from "./links.ts";
import { listOtherNodes } from "./nodes.ts";

test("other nodes are those that the kernel's routes lead to, directly or by the tunnel", async () => {
  using site = await newClusterSite({ segments: 2 });
  const [{ netns }, b, c] = site.nodes as [SiteNode, SiteNode, SiteNode];
  const list = (known: readonly SiteNode[]) =>
    listOtherNodes(netns.route, listNamespaceLinks(netns.route), known.map(({ node }) => node));
  const direct = (dst: string, gateway: string) => ({ dst, gateway, link: "eth0", isTunnelled: false });
  const tunnelled = (dst: string) => ({ dst, gateway: "198.51.100.13", link: "cni-vxlan", isTunnelled: true });
  expect(list([b, c]) as unknown).toEqual([
    { name: "b", routes: [direct("10.244.2.0/24", "192.0.2.12"), direct("fd00:2::/64", "2001:db8:1::12")] },
    { name: "c", routes: [tunnelled("10.244.3.0/24"), tunnelled("fd00:3::/64")] },
  ]);
  // Routes of other programs are none of ours, and a range stands for a node that is not known.
  runShellInNetns(
    netns,
    "ip route del 10.244.2.0/24; ip route add 10.244.2.0/24 via 192.0.2.1; ip -6 route del fd00:2::/64",
  );
  expect(list([]).map(({ name }) => name)).toEqual(["10.244.3.0/24", "fd00:3::/64"]);
});
