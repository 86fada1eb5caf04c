/** Other nodes of a cluster, by the routes that lead to their pods. @module */
import { type Cidr, networkOf } from "../../ffi/address.ts";
import { encapsulationOf } from "../../ffi/route/encapsulation.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import * as rawRoute from "../../ffi/route/raw_route.ts";
import { RTN_UNICAST } from "../../ffi/route/uapi.ts";
import { ROUTE_PROTOCOL } from "../../cluster/network/settings.ts";
import type { ClusterNode } from "../../cluster/node.ts";
import type { NamespaceLinks } from "./links.ts";
import type { ShownNode, ShownNodeRoute } from "./node_tree.ts";

/** @param known names them; without a name, a range stands for its node */
export function listOtherNodes(nl: Netlink, { links }: NamespaceLinks, known: Iterable<ClusterNode>): ShownNode[] {
  const names = new Map<Cidr, string>();
  for (const { name, podCidrs } of known) for (const cidr of podCidrs) names.set(networkOf(cidr), name);
  const isToNode = ({ protocol, type }: rawRoute.RawRoute) => protocol === ROUTE_PROTOCOL && type === RTN_UNICAST;
  const routes = rawRoute.list(nl).filter(isToNode).map((route) => {
    const dst = rawRoute.destinationOf(route);
    return { name: names.get(dst) ?? dst, route: showRoute(route, dst, links) };
  });
  return [...Map.groupBy(routes, ({ name }) => name)].sort(([a], [b]) => a < b ? -1 : 1)
    .map(([name, ofNode]) => ({ name, routes: ofNode.map(({ route }) => route) }));
}

function showRoute(route: rawRoute.RawRoute, dst: Cidr, links: NamespaceLinks["links"]): ShownNodeRoute {
  const tunnel = encapsulationOf(route);
  const gateway = tunnel?.destination ?? rawRoute.nextHopGateways(route)[0];
  return {
    dst,
    ...gateway !== undefined && { gateway },
    link: links.get(route.oif ?? 0)?.name ?? "",
    isTunnelled: tunnel !== undefined,
  };
}
