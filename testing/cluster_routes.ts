/** Routes between nodes, as the kernel of a node has them. @module */
import { ROUTE_PROTOCOL } from "../cluster/network/settings.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { destinationOf, listFiltered } from "../ffi/route/raw_route.ts";
import { RT_TABLE_MAIN } from "../ffi/route/uapi.ts";
import { AF_INET, AF_INET6 } from "../ffi/sys/uapi.ts";

/** The destinations of this program's routes in both families. */
export const routedRanges = ({ route }: Netns): string[] =>
  [AF_INET, AF_INET6].flatMap((family) =>
    listFiltered(route, { family, table: RT_TABLE_MAIN, protocol: ROUTE_PROTOCOL })
  ).map(destinationOf);
