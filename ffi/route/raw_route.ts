/**
 * Routes with all attributes, to copy or move them to another table.
 *
 * @see linux/rtnetlink.h struct rtmsg
 * @module
 */
import type { Cidr, Ip } from "../address.ts";
import { bytes, ipCodec, Reader, u32 } from "../netlink/codec.ts";
import {
  message,
  type MessageIn,
  type MessageOut,
  NLM_F_APPEND,
  NLM_F_CREATE,
  NLM_F_EXCL,
  NLM_F_REPLACE,
} from "../netlink/message.ts";
import { dump, dumpEach, execute, type Netlink, type NetlinkRequest, request } from "../netlink/socket.ts";
import { ignoreErrors, withPurpose } from "../sys/error.ts";
import { AF_INET, AF_INET6 } from "../sys/uapi.ts";
import { rtnetlinkOperations } from "./operations.ts";
import { type NextHop, nextHops, prefixOf, rtmsg, tableFields } from "./route.ts";
import * as uapi from "./uapi.ts";

export const rawRouteMessage = message("route", rtmsg, () => ({
  dst: [uapi.RTA_DST, ipCodec],
  src: [uapi.RTA_SRC, ipCodec],
  oif: [uapi.RTA_OIF, u32],
  gateway: [uapi.RTA_GATEWAY, ipCodec],
  priority: [uapi.RTA_PRIORITY, u32],
  prefsrc: [uapi.RTA_PREFSRC, ipCodec],
  metrics: [uapi.RTA_METRICS, bytes],
  multipath: [uapi.RTA_MULTIPATH, bytes],
  realms: [uapi.RTA_FLOW, u32],
  table: [uapi.RTA_TABLE, u32],
  via: [uapi.RTA_VIA, bytes],
  preference: [uapi.RTA_PREF, bytes],
  encapType: [uapi.RTA_ENCAP_TYPE, bytes],
  encap: [uapi.RTA_ENCAP, bytes],
  nextHopId: [uapi.RTA_NH_ID, u32],
}));
const ROUTE = /* @__PURE__ */ rtnetlinkOperations("ROUTE", uapi.RTM_NEWROUTE, rawRouteMessage);

export type RawRoute = MessageOut<typeof rawRouteMessage>;

export interface RouteFilter {
  readonly family: number;
  readonly table: number;
  readonly protocol?: number;
}

/** Lists without keeping all. @param onStart called again if routes changed meanwhile, before all come again */
export function forEachFiltered(
  nl: Netlink,
  { family, table, protocol }: RouteFilter,
  onStart: () => void,
  onRoute: (route: RawRoute) => void,
): void {
  // Kernels before 4.20 list others too.
  const isWanted = (route: RawRoute) =>
    !(route.flags & uapi.RTM_F_CLONED) && tableOf(route) === table &&
    (protocol === undefined || route.protocol === protocol);
  const onItem = (route: RawRoute) => isWanted(route) && onRoute(route);
  // ENOENT: the table never had a route of this family.
  ignoreErrors(
    ["ENOENT"],
    () => withPurpose("list routes", () => dumpEach(nl, ROUTE.GET, { family, table, protocol }, onStart, onItem)),
  );
}

export function listFiltered(nl: Netlink, filter: RouteFilter): RawRoute[] {
  let routes: RawRoute[] = [];
  forEachFiltered(nl, filter, () => void (routes = []), (route) => void routes.push(route));
  return routes;
}

/** Fails if there is a route of equal destination and metric. */
export function addExclusiveRequest(route: RawRoute): NetlinkRequest {
  return request(ROUTE.NEW, fields(route), NLM_F_CREATE | NLM_F_EXCL);
}

export function replaceRequest(route: RawRoute): NetlinkRequest {
  return request(ROUTE.NEW, fields(route), NLM_F_CREATE | NLM_F_REPLACE);
}

/** Fails if the route is another protocol's. */
export function removeRequest(route: RawRoute): NetlinkRequest {
  return request(ROUTE.DEL, fields(route));
}

export function list(nl: Netlink): RawRoute[] {
  return [AF_INET, AF_INET6]
    .flatMap((family) => withPurpose("list routes", () => dump(nl, ROUTE.GET, { family })))
    .filter(({ flags }) => !(flags & uapi.RTM_F_CLONED))
    .flatMap(splitMultipath);
}

/** Dumps join IPv6 routes of equal destination and metric. */
function splitMultipath(route: RawRoute): RawRoute[] {
  const { multipath, ...shared } = route;
  if (route.family !== AF_INET6 || !multipath || route.nextHopId !== undefined) return [route];
  return nextHopsOf(route).map((hop) => ({ ...shared, ...hop }));
}

export function append(nl: Netlink, route: RawRoute): void {
  add(nl, route, NLM_F_APPEND);
}

export function replace(nl: Netlink, route: RawRoute): void {
  add(nl, route, NLM_F_REPLACE);
}

function add(nl: Netlink, route: RawRoute, flag: number): void {
  withPurpose(() => `add ${describe(route)}`, () => execute(nl, ROUTE.NEW, fields(route), NLM_F_CREATE | flag));
}

export function remove(nl: Netlink, route: RawRoute): void {
  withPurpose(() => `remove ${describe(route)}`, () => execute(nl, ROUTE.DEL, fields(route)));
}

export function tableOf({ table, shortTable }: RawRoute): number {
  return table ?? shortTable;
}

export function withTable(route: RawRoute, table: number): RawRoute {
  return { ...route, table, ...tableFields(table) };
}

export function destinationOf({ family, dst, dstLen }: RawRoute): Cidr {
  return prefixOf(family, dst, dstLen);
}

/** Returns no index for a route that ends here. */
export function linksOf(route: RawRoute): number[] {
  return nextHopsOf(route).flatMap(({ oif }) => oif ?? []);
}

export function nextHopGateways(route: RawRoute): Ip[] {
  return nextHopsOf(route).flatMap(({ gateway }) => gateway ?? []);
}

function nextHopsOf({ oif, gateway, multipath }: RawRoute): readonly Partial<NextHop>[] {
  return multipath ? nextHops.read(new Reader(multipath)) : [{ oif, gateway }];
}

function fields(route: RawRoute): MessageIn<typeof rawRouteMessage> {
  const { nextHopId, oif, gateway, multipath, via, ...rest } = route;
  return {
    ...rest,
    // Other flags show the link's present state.
    flags: route.flags & uapi.RTNH_F_ONLINK,
    ...nextHopId === undefined ? { oif, gateway, multipath, via } : { nextHopId },
  };
}

function describe(route: RawRoute): string {
  const gateways = nextHopGateways(route);
  const via = gateways.length > 0 ? ` via ${gateways.join(", ")}` : "";
  return `route to ${destinationOf(route)}${via} in table ${tableOf(route)}`;
}
