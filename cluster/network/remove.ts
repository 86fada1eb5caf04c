import { executeEach } from "../../ffi/netlink/each.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { currentNetns } from "../../ffi/netns/netns.ts";
import * as rawRoute from "../../ffi/route/raw_route.ts";
import { RT_TABLE_MAIN } from "../../ffi/route/uapi.ts";
import { AF_INET, AF_INET6 } from "../../ffi/sys/uapi.ts";
import { removeRuleset } from "./ruleset.ts";
import { ROUTE_PROTOCOL, TUNNEL_LINK } from "./settings.ts";
import { removeTunnel } from "./tunnel.ts";

/** Removes all that a {@linkcode ClusterNetwork} made in the thread's network namespace. */
export function removeClusterNetwork(log: (message: string) => void): void {
  using host = currentNetns();
  const count = removeRoutes(host.route);
  if (count > 0) log(`Removed ${count} routes of the network between nodes`);
  if (removeTunnel(host.route)) log(`Removed the tunnel between nodes, "${TUNNEL_LINK}"`);
  if (removeRuleset(host.nft)) log("Removed the rules of the network between nodes");
}

function removeRoutes(nl: Netlink): number {
  const routes = [AF_INET, AF_INET6].flatMap((family) =>
    rawRoute.listFiltered(nl, { family, table: RT_TABLE_MAIN, protocol: ROUTE_PROTOCOL })
  );
  return routes.length - executeEach(nl, routes.map(rawRoute.removeRequest)).size;
}
