import { type Cidr, type Ip, ipOf, networkOf, prefixLengthOf, toCidr } from "../address.ts";
import { attrs } from "../netlink/attrs.ts";
import { type Codec, ipCodec, Reader, struct, u32, u8 } from "../netlink/codec.ts";
import {
  message,
  type MessageIn,
  type MessageOut,
  NLM_F_APPEND,
  NLM_F_CREATE,
  NLM_F_EXCL,
  NLM_F_REPLACE,
} from "../netlink/message.ts";
import { dump, type Netlink, type NetlinkRequest, query, queryAllIfPresent, request } from "../netlink/socket.ts";
import { EHOSTUNREACH, ENETUNREACH } from "../sys/errno.ts";
import { ignoreErrors } from "../sys/error.ts";
import { AF_INET } from "../sys/uapi.ts";
import { addressFamily } from "./address.ts";
import { rtnetlinkOperations } from "./operations.ts";
import * as uapi from "./uapi.ts";

export const rtmsg = struct({
  family: u8,
  dstLen: u8,
  srcLen: u8,
  tos: u8,
  shortTable: u8,
  protocol: u8,
  scope: u8,
  type: u8,
  flags: u32,
});
export interface NextHop {
  readonly oif: number;
  readonly gateway?: Ip;
}
const nextHopAttrs = attrs(() => ({ gateway: [uapi.RTA_GATEWAY, ipCodec] }));
// struct rtnexthop { u16 len; u8 flags; u8 hops; s32 ifindex; } and attributes, repeated.
export const nextHops: Codec<readonly NextHop[]> = {
  write() {
    throw new TypeError("Cannot send several next hops: the kernel joins routes that are added one by one");
  },
  read(r) {
    const hops: NextHop[] = [];
    const HEADER = 8;
    while (r.end - r.offset >= HEADER) {
      const start = r.skip(HEADER);
      const length = r.view.getUint16(start, true);
      if (length < HEADER) throw new RangeError(`Cannot read the next hop at ${start}: its length is ${length}`);
      r.skip(length - HEADER);
      const { gateway } = nextHopAttrs.read(new Reader(r.bytes, start + HEADER, r.offset));
      hops.push({ oif: r.view.getInt32(start + 4, true), ...gateway && { gateway } });
      r.offset = Math.min(r.end, start + ((length + 3) & ~3));
    }
    return hops;
  },
};

export const routeMessage = message("route", rtmsg, () => ({
  dst: [uapi.RTA_DST, ipCodec],
  oif: [uapi.RTA_OIF, u32],
  gateway: [uapi.RTA_GATEWAY, ipCodec],
  priority: [uapi.RTA_PRIORITY, u32],
  prefsrc: [uapi.RTA_PREFSRC, ipCodec],
  metrics: [uapi.RTA_METRICS, attrs(() => ({ mtu: [uapi.RTAX_MTU, u32], advmss: [uapi.RTAX_ADVMSS, u32] }))],
  table: [uapi.RTA_TABLE, u32],
  /** Replaces `oif` and `gateway` where the kernel joined IPv6 routes. */
  nextHops: [uapi.RTA_MULTIPATH, nextHops],
}));
const ROUTE = /* @__PURE__ */ rtnetlinkOperations("ROUTE", uapi.RTM_NEWROUTE, routeMessage);

export interface UnicastRoute {
  readonly dst: Cidr;
  readonly oif?: number | undefined;
  readonly gateway?: Ip | undefined;
  readonly prefsrc?: Ip | undefined;
  readonly onlink?: boolean | undefined;
  readonly priority?: number | undefined;
  readonly table?: number | undefined;
  readonly scope?: number | undefined;
  readonly mtu?: number | undefined;
  /** The largest TCP segment, in bytes. */
  readonly advmss?: number | undefined;
}

/** Goes behind routes of equal destination and metric. */
export function appendRequest(route: UnicastRoute): NetlinkRequest {
  return request(ROUTE.NEW, fields(route), NLM_F_CREATE | NLM_F_APPEND);
}

export function replaceRequest(route: UnicastRoute): NetlinkRequest {
  return request(ROUTE.NEW, fields(route), NLM_F_CREATE | NLM_F_REPLACE);
}

/** Fails if there is a route of equal destination and metric. */
export function addExclusiveRequest(route: UnicastRoute): NetlinkRequest {
  return request(ROUTE.NEW, fields(route), NLM_F_CREATE | NLM_F_EXCL);
}

function fields(route: UnicastRoute): MessageIn<typeof routeMessage> {
  const { dst, gateway, oif, prefsrc, priority, mtu, advmss, table = uapi.RT_TABLE_MAIN } = route;
  const family = addressFamily(dst);
  const isLinkScope = gateway === undefined && family === AF_INET;
  return {
    family,
    dstLen: prefixLengthOf(dst),
    protocol: uapi.RTPROT_BOOT,
    scope: route.scope ?? (isLinkScope ? uapi.RT_SCOPE_LINK : uapi.RT_SCOPE_UNIVERSE),
    type: uapi.RTN_UNICAST,
    flags: route.onlink ? uapi.RTNH_F_ONLINK : 0,
    dst: ipOf(networkOf(dst)),
    oif,
    gateway,
    prefsrc,
    priority,
    metrics: mtu === undefined && advmss === undefined ? undefined : { mtu, advmss },
    ...tableFields(table),
  };
}

/** The header holds small numbers only. */
export function tableFields(table: number): { readonly shortTable: number; readonly table?: number } {
  return table < 256 ? { shortTable: table } : { shortTable: uapi.RT_TABLE_UNSPEC, table };
}

/** Without `ip`, the network is all of the family. */
export function prefixOf(family: number, ip: Ip | undefined, length: number): Cidr {
  return toCidr(ip ?? (family === AF_INET ? "0.0.0.0" : "::") as Ip, length);
}

/**
 * Unicast only. A route with several next hops becomes several.
 *
 * @param link its index
 * @throws {NetlinkError} `ENODEV` without the link
 */
export function list(nl: Netlink, family: number, table?: number, link?: number): UnicastRoute[] {
  // ENOENT: the table never had a route of this family.
  const all = ignoreErrors(["ENOENT"], () => dump(nl, ROUTE.GET, { family, table, oif: link })) ?? [];
  // The kernel sends a whole route of which one next hop is on the link.
  return all.filter(({ type, flags }) => type === uapi.RTN_UNICAST && !(flags & uapi.RTM_F_CLONED)).flatMap(toRoutes)
    .filter((route) => (table === undefined || route.table === table) && (link === undefined || route.oif === link));
}

/** The networks of the main table whose packets the kernel refuses. */
export function listUnreachable(nl: Netlink, family: number): Cidr[] {
  const asked = { family, type: uapi.RTN_UNREACHABLE, table: uapi.RT_TABLE_MAIN };
  const all = ignoreErrors(["ENOENT"], () => dump(nl, ROUTE.GET, asked)) ?? [];
  return all.filter(({ type }) => type === uapi.RTN_UNREACHABLE)
    .map(({ family, dst, dstLen }) => prefixOf(family, dst, dstLen));
}

export function outgoingRoute(nl: Netlink, destination: Ip): { readonly oif?: number; readonly source?: Ip } {
  const family = addressFamily(destination);
  const { oif, prefsrc } = query(nl, ROUTE.GET, { family, dstLen: family === AF_INET ? 32 : 128, dst: destination });
  return { ...oif !== undefined && { oif }, ...prefsrc !== undefined && { source: prefsrc } };
}

/** The route by which the kernel chooses, of any type. */
export interface RouteMatch {
  readonly dst: Cidr;
  readonly type: number;
  readonly table: number;
  readonly oif?: number | undefined;
  readonly hasGateway: boolean;
  /** Only if the route has one of its own. */
  readonly mtu?: number | undefined;
}

/** Returns `undefined` where there is none, or one of type unreachable. @throws {NetlinkError} for a prohibit route */
export function matchAll(nl: Netlink, destinations: readonly Ip[]): (RouteMatch | undefined)[] {
  const replies = queryAllIfPresent(nl, destinations.map(matchRequest), [ENETUNREACH, EHOSTUNREACH]);
  return (replies as (MessageOut<typeof routeMessage> | undefined)[]).map((reply) => reply && toMatch(reply));
}

export function matchRequest(dst: Ip): NetlinkRequest {
  const family = addressFamily(dst);
  return request(ROUTE.GET, { family, dstLen: family === AF_INET ? 32 : 128, dst, flags: uapi.RTM_F_FIB_MATCH });
}

export const toMatch = (reply: MessageOut<typeof routeMessage>): RouteMatch => ({
  dst: prefixOf(reply.family, reply.dst, reply.dstLen),
  type: reply.type,
  table: reply.table ?? reply.shortTable,
  oif: reply.oif,
  hasGateway: reply.gateway !== undefined || reply.nextHops !== undefined || isBeyondLink(reply),
  mtu: reply.metrics?.mtu,
});

/** IPv4 routes may have a gateway of IPv6, in an attribute of its own. */
function isBeyondLink({ family, type, scope }: MessageOut<typeof routeMessage>): boolean {
  return family === AF_INET && type === uapi.RTN_UNICAST && scope === uapi.RT_SCOPE_UNIVERSE;
}

function toRoutes(reply: MessageOut<typeof routeMessage>): UnicastRoute[] {
  const shared = {
    dst: prefixOf(reply.family, reply.dst, reply.dstLen),
    source: reply.prefsrc,
    priority: reply.priority,
    table: reply.table ?? reply.shortTable,
    scope: reply.scope,
    mtu: reply.metrics?.mtu,
    advmss: reply.metrics?.advmss,
  };
  return (reply.nextHops ?? [reply]).map(({ oif, gateway }) => ({ ...shared, oif, gateway }));
}
