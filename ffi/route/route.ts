/**
 * Routes.
 *
 * @see linux/rtnetlink.h struct rtmsg
 * @module
 */
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
  type Operation,
} from "../netlink/message.ts";
import { dump, type Netlink, type NetlinkRequest, query, request } from "../netlink/socket.ts";
import { ignoreErrors } from "../sys/error.ts";
import { AF_INET } from "../sys/uapi.ts";
import { addressFamily } from "./address.ts";
import {
  RT_SCOPE_LINK,
  RT_SCOPE_UNIVERSE,
  RT_TABLE_MAIN,
  RT_TABLE_UNSPEC,
  RTA_DST,
  RTA_GATEWAY,
  RTA_METRICS,
  RTA_MULTIPATH,
  RTA_OIF,
  RTA_PREFSRC,
  RTA_PRIORITY,
  RTA_TABLE,
  RTAX_ADVMSS,
  RTAX_MTU,
  RTM_F_CLONED,
  RTM_GETROUTE,
  RTM_NEWROUTE,
  RTN_UNICAST,
  RTNH_F_ONLINK,
  RTPROT_BOOT,
} from "./uapi.ts";

/** struct rtmsg */
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
/** One of several ways to a destination. */
export interface NextHop {
  readonly oif: number;
  readonly gateway?: Ip;
}
const nextHopAttrs = attrs(() => ({ gateway: [RTA_GATEWAY, ipCodec] }));
/** Several ways to a destination. struct rtnexthop { u16 len; u8 flags; u8 hops; s32 ifindex; }, each with attributes behind it. */
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

/** A route, as in RTM_NEWROUTE and its relatives. */
export const routeMessage = message("route", rtmsg, () => ({
  dst: [RTA_DST, ipCodec],
  oif: [RTA_OIF, u32],
  gateway: [RTA_GATEWAY, ipCodec],
  priority: [RTA_PRIORITY, u32],
  prefsrc: [RTA_PREFSRC, ipCodec],
  metrics: [RTA_METRICS, attrs(() => ({ mtu: [RTAX_MTU, u32], advmss: [RTAX_ADVMSS, u32] }))],
  table: [RTA_TABLE, u32],
  /** Instead of `oif` and `gateway`, where the kernel joined routes: IPv6 routes of one destination and metric. */
  nextHops: [RTA_MULTIPATH, nextHops],
}));
type RouteOp = Operation<typeof routeMessage>;
const NEW: RouteOp = { name: "RTM_NEWROUTE", type: RTM_NEWROUTE, spec: routeMessage };
const GET: RouteOp = { name: "RTM_GETROUTE", type: RTM_GETROUTE, spec: routeMessage };

/** A route out of one link. */
export interface UnicastRoute {
  readonly dst: Cidr;
  /** Index of the link. */
  readonly oif?: number | undefined;
  readonly gateway?: Ip | undefined;
  /** What packets are from, unless their sender says so. */
  readonly prefsrc?: Ip | undefined;
  /** The gateway is at the other end of the link whatever the other routes say. */
  readonly onlink?: boolean | undefined;
  /** The metric: of two routes the lower wins. */
  readonly priority?: number | undefined;
  /** Routing table; 254 (main) unless told. */
  readonly table?: number | undefined;
  /** RT_SCOPE_…; found out by the kernel's rules unless told. */
  readonly scope?: number | undefined;
  /** Largest packet on the way, in bytes. */
  readonly mtu?: number | undefined;
  /** Largest TCP segment to announce, in bytes. */
  readonly advmss?: number | undefined;
}

/** The request that adds a route, to be sent with others; behind those that have the same destination and metric already. */
export function appendRequest(route: UnicastRoute): NetlinkRequest {
  return request(NEW, fields(route), NLM_F_CREATE | NLM_F_APPEND);
}

/** The request that adds a route unless there is one of the same destination and metric, to be sent with others. */
export function addExclusiveRequest(route: UnicastRoute): NetlinkRequest {
  return request(NEW, fields(route), NLM_F_CREATE | NLM_F_EXCL);
}

function fields(route: UnicastRoute): MessageIn<typeof routeMessage> {
  const { dst, gateway, oif, prefsrc, priority, mtu, advmss, table = RT_TABLE_MAIN } = route;
  const scope = route.scope ??
    (gateway === undefined && addressFamily(dst) === AF_INET ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE);
  return {
    family: addressFamily(dst),
    dstLen: prefixLengthOf(dst),
    shortTable: table < 256 ? table : RT_TABLE_UNSPEC,
    protocol: RTPROT_BOOT,
    scope,
    type: RTN_UNICAST,
    flags: route.onlink ? RTNH_F_ONLINK : 0,
    dst: ipOf(networkOf(dst)),
    ...oif === undefined ? {} : { oif },
    ...gateway === undefined ? {} : { gateway },
    ...prefsrc === undefined ? {} : { prefsrc },
    ...priority === undefined ? {} : { priority },
    ...mtu === undefined && advmss === undefined ? {} : { metrics: { mtu, advmss } },
    ...table < 256 ? {} : { table },
  };
}

/** The unicast routes of a family, in every table or in one; one with several next hops is several routes. @throws {NetlinkError} */
export function list(nl: Netlink, family: number, table?: number): UnicastRoute[] {
  // A table that never held a route of the family is none to the kernel.
  const all = ignoreErrors(["ENOENT"], () => dump(nl, GET, { family, ...table === undefined ? {} : { table } })) ?? [];
  return all.filter((reply) => reply.type === RTN_UNICAST && !(reply.flags & RTM_F_CLONED)).flatMap(toRoutes)
    .filter((reply) => table === undefined || reply.table === table);
}

/** By which link packets to `destination` leave, and with which source, as far as the kernel says. @throws {NetlinkError} */
export function outgoingRoute(nl: Netlink, destination: Ip): { readonly oif?: number; readonly source?: Ip } {
  const family = addressFamily(destination);
  const { oif, prefsrc } = query(nl, GET, { family, dstLen: family === AF_INET ? 32 : 128, dst: destination });
  return { ...oif !== undefined && { oif }, ...prefsrc !== undefined && { source: prefsrc } };
}

function toRoutes(reply: MessageOut<typeof routeMessage>): UnicastRoute[] {
  const unspecified = (reply.family === AF_INET ? "0.0.0.0" : "::") as Ip;
  const shared = {
    dst: toCidr(reply.dst ?? unspecified, reply.dstLen),
    source: reply.prefsrc,
    priority: reply.priority,
    table: reply.table ?? reply.shortTable,
    scope: reply.scope,
    mtu: reply.metrics?.mtu,
    advmss: reply.metrics?.advmss,
  };
  return (reply.nextHops ?? [reply]).map(({ oif, gateway }) => ({ ...shared, oif, gateway }));
}
