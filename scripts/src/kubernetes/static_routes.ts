/** Routes between nodes as somebody sets them by hand, for a network that leaves this to others. @module */
import { runShell } from "../harness/process.ts";
import { kubectl } from "./kubectl.ts";
import { type ClusterNode, runOnNode } from "./nodes.ts";

/** Nodes of one segment know each other's pods. The router knows all of them, and is asked for the others. */
export async function addStaticRoutes(nodes: readonly ClusterNode[]): Promise<void> {
  const ranges = await podRanges();
  for (const { plan } of nodes) {
    for (const range of ranges.get(plan.name)!) {
      const via = plan.addresses.find((address) => isIpv6(address) === isIpv6(range))!;
      runShell(`ip route replace ${range} via ${via}`);
      const neighbours = nodes.filter(({ plan: { name, segment } }) => name !== plan.name && segment === plan.segment);
      for (const neighbour of neighbours) runOnNode(neighbour, "ip", "route", "replace", range, "via", via);
    }
  }
}

const isIpv6 = (address: string): boolean => address.includes(":");

/** By the name of the node. */
async function podRanges(): Promise<ReadonlyMap<string, readonly string[]>> {
  const { items } = JSON.parse(await kubectl(["get", "nodes", "-o", "json"])) as {
    readonly items: readonly {
      readonly metadata: { readonly name: string };
      readonly spec: { readonly podCIDRs: string[] };
    }[];
  };
  return new Map(items.map(({ metadata: { name }, spec: { podCIDRs } }) => [name, podCIDRs]));
}
