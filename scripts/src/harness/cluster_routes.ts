/** The routes to other nodes that the part `cluster` keeps in the kernel. @module */
import { ROUTE_PROTOCOL } from "../../../cluster/network/settings.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { encapsulationOf } from "../../../ffi/route/encapsulation.ts";
import { listFiltered, type RawRoute } from "../../../ffi/route/raw_route.ts";
import { RT_TABLE_MAIN } from "../../../ffi/route/uapi.ts";
import { AF_INET, AF_INET6 } from "../../../ffi/sys/uapi.ts";

export const clusterRoutesOf = ({ route }: Netns): RawRoute[] =>
  [AF_INET, AF_INET6].flatMap((family) =>
    listFiltered(route, { family, table: RT_TABLE_MAIN, protocol: ROUTE_PROTOCOL })
  );

/** The node that a route leads to. */
export const routeDestination = (route: RawRoute): string => encapsulationOf(route)?.destination ?? route.gateway ?? "";

/** Whether a node with this address has its route. */
export const hasRouteTo = (netns: Netns, address: string): boolean =>
  clusterRoutesOf(netns).some((route) => routeDestination(route) === address);
