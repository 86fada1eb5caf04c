/** Routes between nodes as somebody sets them by hand, for a network that leaves this to others. @module */
import { runShell } from "../harness/process.ts";
import { kubectl, untilTrue } from "./kubectl.ts";
import { type KubernetesNode, runOnNode } from "./nodes.ts";
import type { ClusterPlan } from "./plan.ts";

/** The router knows the pods of all nodes. Nodes know those of their segment, and ask the router for the others. */
export async function addStaticRoutes(nodes: readonly KubernetesNode[], { segments }: ClusterPlan): Promise<void> {
  const ranges = await podRanges();
  for (const { plan } of nodes) {
    for (const range of ranges.get(plan.name)!) {
      const ofFamily = (addresses: readonly string[]) => addresses.find((each) => isIpv6(each) === isIpv6(range))!;
      runShell(`ip route replace ${range} via ${ofFamily(plan.addresses)}`);
      for (const other of nodes.filter(({ plan: { name } }) => name !== plan.name)) {
        const { segment } = other.plan;
        const router = segments[segment - 1]!.router.map(({ address }) => address);
        const via = ofFamily(segment === plan.segment ? plan.addresses : router);
        runOnNode(other, "ip", "route", "replace", range, "via", via);
      }
    }
  }
}

const isIpv6 = (address: string): boolean => address.includes(":");

/** The ranges by the name of the node, once each node has its own. */
async function podRanges(): Promise<ReadonlyMap<string, readonly string[]>> {
  let found: ReadonlyMap<string, readonly string[]> = new Map();
  await untilTrue("The allocation of ranges", async () => {
    found = await askPodRanges();
    return found.values().every((ranges) => ranges.length > 0);
  });
  return found;
}

async function askPodRanges(): Promise<ReadonlyMap<string, readonly string[]>> {
  const { items } = JSON.parse(await kubectl(["get", "nodes", "-o", "json"])) as {
    readonly items: readonly {
      readonly metadata: { readonly name: string };
      readonly spec: { readonly podCIDRs?: readonly string[] };
    }[];
  };
  return new Map(items.map(({ metadata: { name }, spec: { podCIDRs = [] } }) => [name, podCIDRs]));
}
