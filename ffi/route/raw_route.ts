/**
 * Routes with all that the kernel keeps of them, to be copied or moved into another table as they are.
 *
 * Used as a namespace: `import * as wholeRoute from "../ffi/route/whole_route.ts"`.
 *
 * @see linux/rtnetlink.h struct rtmsg
 * @module
 */
import { type Cidr, type Ip, toCidr } from "../address.ts";
import { bytes, ipCodec, Reader, u32 } from "../netlink/codec.ts";
import { withRequestPurpose } from "../netlink/error.ts";
import {
  message,
  type MessageIn,
  type MessageOut,
  NLM_F_APPEND,
  NLM_F_CREATE,
  NLM_F_REPLACE,
  type Operation,
} from "../netlink/message.ts";
import { dump, execute, type Netlink } from "../netlink/socket.ts";
import { AF_INET, AF_INET6 } from "../sys/uapi.ts";
import { nextHops, rtmsg } from "./route.ts";
import {
  RT_TABLE_UNSPEC,
  RTA_DST,
  RTA_ENCAP,
  RTA_ENCAP_TYPE,
  RTA_FLOW,
  RTA_GATEWAY,
  RTA_METRICS,
  RTA_MULTIPATH,
  RTA_NH_ID,
  RTA_OIF,
  RTA_PREF,
  RTA_PREFSRC,
  RTA_PRIORITY,
  RTA_SRC,
  RTA_TABLE,
  RTA_VIA,
  RTM_DELROUTE,
  RTM_F_CLONED,
  RTM_GETROUTE,
  RTM_NEWROUTE,
  RTNH_F_ONLINK,
} from "./uapi.ts";

const rawRouteMessage = message("route", rtmsg, () => ({
  dst: [RTA_DST, ipCodec],
  src: [RTA_SRC, ipCodec],
  oif: [RTA_OIF, u32],
  gateway: [RTA_GATEWAY, ipCodec],
  priority: [RTA_PRIORITY, u32],
  prefsrc: [RTA_PREFSRC, ipCodec],
  metrics: [RTA_METRICS, bytes],
  multipath: [RTA_MULTIPATH, bytes],
  realms: [RTA_FLOW, u32],
  table: [RTA_TABLE, u32],
  via: [RTA_VIA, bytes],
  preference: [RTA_PREF, bytes],
  encapType: [RTA_ENCAP_TYPE, bytes],
  encap: [RTA_ENCAP, bytes],
  nextHopId: [RTA_NH_ID, u32],
}));
type RouteOp = Operation<typeof rawRouteMessage>;
const NEW: RouteOp = { name: "RTM_NEWROUTE", type: RTM_NEWROUTE, spec: rawRouteMessage };
const DEL: RouteOp = { name: "RTM_DELROUTE", type: RTM_DELROUTE, spec: rawRouteMessage };
const GET: RouteOp = { name: "RTM_GETROUTE", type: RTM_GETROUTE, spec: rawRouteMessage };

/** A route as the kernel reports it; one that is new needs the fields that it does not leave to the kernel. */
export type RawRoute = MessageOut<typeof rawRouteMessage>;

/** The routes of every kind and table of IPv4 and IPv6. @throws {NetlinkError} */
export function list(nl: Netlink): RawRoute[] {
  return [AF_INET, AF_INET6].flatMap((family) =>
    withRequestPurpose(() => "list routes", () => dump(nl, GET, { family }))
  )
    .filter((route) => !(route.flags & RTM_F_CLONED)).flatMap(splitMultipath);
}

/** IPv6 routes of one destination and metric are routes of their own, whatever their links, and joined to one only when listed. */
function splitMultipath(route: RawRoute): RawRoute[] {
  const { multipath, ...shared } = route;
  if (route.family !== AF_INET6 || !multipath || route.nextHopId !== undefined) return [route];
  return nextHops.read(new Reader(multipath)).map((hop) => ({ ...shared, ...hop }));
}

/** Adds a route behind those that have the same destination and metric already. @throws {NetlinkError} `EEXIST` if it is there */
export function append(nl: Netlink, route: RawRoute): void {
  withRequestPurpose(
    () => `add ${describe(route)}`,
    () => execute(nl, NEW, fields(route), NLM_F_CREATE | NLM_F_APPEND),
  );
}

/** Adds a route, in place of one of the same destination and metric. @throws {NetlinkError} */
export function replace(nl: Netlink, route: RawRoute): void {
  withRequestPurpose(
    () => `add ${describe(route)}`,
    () => execute(nl, NEW, fields(route), NLM_F_CREATE | NLM_F_REPLACE),
  );
}

/** Removes a route. @throws {NetlinkError} `ESRCH` if it is not there */
export function remove(nl: Netlink, route: RawRoute): void {
  withRequestPurpose(() => `remove ${describe(route)}`, () => execute(nl, DEL, fields(route)));
}

/** The table that a route is in. */
export function tableOf({ table, shortTable }: RawRoute): number {
  return table ?? shortTable;
}

/** The same route in another table. */
export function withTable(route: RawRoute, table: number): RawRoute {
  return { ...route, shortTable: table < 256 ? table : RT_TABLE_UNSPEC, table };
}

/** Where a route leads. */
export function destinationOf({ family, dst, dstLen }: RawRoute): Cidr {
  return toCidr(dst ?? (family === AF_INET ? "0.0.0.0" : "::") as Ip, dstLen);
}

/** Indexes of the links by which a route leaves; none for one that ends here. */
export function linksOf(route: RawRoute): number[] {
  const { oif, multipath } = route;
  if (multipath) return nextHops.read(new Reader(multipath)).map((hop) => hop.oif);
  return oif === undefined ? [] : [oif];
}

/** The gateways of a route. */
export function nextHopGateways({ gateway, multipath }: RawRoute): Ip[] {
  if (multipath) return nextHops.read(new Reader(multipath)).flatMap((hop) => hop.gateway ?? []);
  return gateway === undefined ? [] : [gateway];
}

function fields(route: RawRoute): MessageIn<typeof rawRouteMessage> {
  const { nextHopId, oif, gateway, multipath, via, ...rest } = route;
  return {
    ...rest,
    // The others say how the link is just now.
    flags: route.flags & RTNH_F_ONLINK,
    ...nextHopId === undefined ? { oif, gateway, multipath, via } : { nextHopId },
  };
}

function describe(route: RawRoute): string {
  const gateways = nextHopGateways(route);
  const via = gateways.length > 0 ? ` via ${gateways.join(", ")}` : "";
  return `route to ${destinationOf(route)}${via} in table ${tableOf(route)}`;
}
