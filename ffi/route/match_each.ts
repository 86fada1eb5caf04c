import type { Ip } from "../address.ts";
import { queryEach } from "../netlink/each.ts";
import { NetlinkError } from "../netlink/error.ts";
import type { MessageOut } from "../netlink/message.ts";
import type { Netlink } from "../netlink/socket.ts";
import { matchRequest, type RouteMatch, type routeMessage, toMatch } from "./route.ts";

/** Returns errors where packets have no way: there is no route, or one of type unreachable, prohibit or blackhole. */
export function matchEach(nl: Netlink, destinations: readonly Ip[]): (RouteMatch | NetlinkError)[] {
  return queryEach(nl, destinations.map(matchRequest)).map((reply) =>
    reply instanceof NetlinkError ? reply : toMatch(reply as MessageOut<typeof routeMessage>)
  );
}
