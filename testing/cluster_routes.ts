/** Routes between nodes, as the kernel of a node has them. @module */
import { ROUTE_PROTOCOL } from "../cluster/network/settings.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { encapsulationOf } from "../ffi/route/encapsulation.ts";
import { destinationOf, listFiltered, type RawRoute } from "../ffi/route/raw_route.ts";
import { RT_TABLE_MAIN } from "../ffi/route/uapi.ts";
import { AF_INET, AF_INET6 } from "../ffi/sys/uapi.ts";

/** This program's, of both families. */
export const clusterRoutesOf = ({ route }: Netns): RawRoute[] =>
  [AF_INET, AF_INET6].flatMap((family) =>
    listFiltered(route, { family, table: RT_TABLE_MAIN, protocol: ROUTE_PROTOCOL })
  );

export const routedRanges = (netns: Netns): string[] => clusterRoutesOf(netns).map(destinationOf);

/** The node that a route leads to. */
export const routeDestination = (route: RawRoute): string => encapsulationOf(route)?.destination ?? route.gateway ?? "";

/** Whether a node with this address has its route. */
export const hasRouteTo = (netns: Netns, address: string): boolean =>
  clusterRoutesOf(netns).some((route) => routeDestination(route) === address);
