/**
 * Giving each address of an interface a table of its own, and the interface's routes to those tables.
 *
 * @module
 */
import { type Cidr, contains, familyOf, type Ip, ipOf, networkOf, prefixLengthOf } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import { afOf } from "../../ffi/route/address.ts";
import * as rule from "../../ffi/route/rule.ts";
import * as whole from "../../ffi/route/raw_route.ts";
import type { WholeRoute } from "../../ffi/route/raw_route.ts";
import {
  AF_INET6,
  RT_SCOPE_LINK,
  RT_SCOPE_UNIVERSE,
  RT_TABLE_MAIN,
  RTN_UNICAST,
  RTPROT_BOOT,
} from "../../ffi/route/uapi.ts";
import type { IpConfig } from "../../spec/result.ts";
import { byDependence, freeTables, leavesBy } from "../lib/links/routes.ts";
import { hostOf, type SbrConfig } from "./config.ts";

const FIRST_TABLE = 100;
/** What the kernel gives a route of IPv6 that says none. */
const IPV6_METRIC = 1024;

/** Where the changes are made, and what takes them back. */
export interface Place {
  readonly netns: Netns;
  /** Of the interface. */
  readonly index: number;
  readonly undo: DisposableStack;
}

/** Sends what is from these addresses to `table`, unless it is sent there already. @throws {NetlinkError} */
export function addRules(place: Place, ips: readonly IpConfig[], table: number): void {
  const present = rule.list(place.netns.route);
  for (const from of ips.map((ip) => hostOf(ip.address))) {
    if (present.some((each) => each.isBySource && each.from === from && each.table === table)) continue;
    addRule(place, { from, table });
  }
}

function addRule({ netns, undo }: Place, wanted: rule.SourceRule): void {
  rule.add(netns.route, wanted);
  undo.defer(() => rule.remove(netns.route, wanted));
}

/** Gives each address a rule and a table, and moves the interface's routes out of the main table into those. @throws {NetlinkError} */
export function moveRoutes(place: Place, ips: readonly IpConfig[], config: SbrConfig): void {
  const { netns, index } = place;
  const all = whole.list(netns.route);
  const own = all.filter((each) => whole.tableOf(each) === RT_TABLE_MAIN && leavesBy(each, index));
  const tables = freeTables(FIRST_TABLE, rule.list(netns.route), all);
  for (const ip of ips) {
    const table = tables.next().value;
    addRule(place, { from: hostOf(ip.address), table });
    fillTable(place, table, ip, routesOf(ip, ips, own), config);
  }
  if (config.addSourceHints) leaveHints(place, ips, own);
  else clear(place, own);
}

/** Copies what leads to the neighbours and the gateways of an address into its table, and adds a default route. */
function fillTable(place: Place, table: number, ip: IpConfig, own: readonly WholeRoute[], config: SbrConfig): void {
  const forced = forcedGateway(ip, config);
  const isDefaultRoute = (each: WholeRoute) => each.family === afOf(ip.address) && each.dstLength === 0;
  // What the configuration names is the only one there.
  const copied = forced ? own.filter((each) => !isDefaultRoute(each)) : own;
  for (const each of copied.toSorted(byDependence)) append(place, whole.inTable(each, table));
  const gateway = forced ?? ip.gateway;
  const metric = familyOf(ip.address) === 4 ? 0 : IPV6_METRIC;
  if (!gateway || copied.some((each) => isDefaultRoute(each) && (each.priority ?? 0) === metric)) return;
  append(place, whole.inTable({ ...plainRoute(place, ip.address), gateway }, table));
}

/** The gateway that the configuration has for the family of an address. */
export function forcedGateway(ip: IpConfig, { gateways }: SbrConfig): Ip | undefined {
  return gateways.find((each) => familyOf(each) === familyOf(ip.address));
}

/** The routes that are of use to an address: those by its subnet, those that are nobody's, those by no subnet at all. */
function routesOf(ip: IpConfig, ips: readonly IpConfig[], own: readonly WholeRoute[]): WholeRoute[] {
  return own.filter((each) => {
    const named = [...each.prefsrc ? [each.prefsrc] : [], ...whole.gatewaysOf(each)];
    const isBy = ({ address }: IpConfig) => named.some((one) => contains(networkOf(address), one));
    return named.length === 0 || isBy(ip) || (each.family === afOf(ip.address) && !ips.some(isBy));
  });
}

/** Removes routes from the main table. */
function clear({ netns, undo }: Place, routes: readonly WholeRoute[]): void {
  // What leads to a gateway goes last, and is put back first.
  for (const each of routes.toSorted(byDependence).toReversed()) {
    tolerating("ESRCH", () => {
      whole.remove(netns.route, each);
      undo.defer(() => whole.append(netns.route, each));
    });
  }
}

/** Leaves in the main table the ways to the subnets, so that programs that name no source get the right one. */
function leaveHints(place: Place, ips: readonly IpConfig[], own: readonly WholeRoute[]): void {
  const { netns, undo } = place;
  const replaced = ips.map(({ address }) => {
    const hint = {
      ...plainRoute(place, address),
      dst: ipOf(networkOf(address)),
      dstLength: prefixLengthOf(address),
      prefsrc: ipOf(address),
      scope: RT_SCOPE_LINK,
    };
    const former = familyOf(address) === 4 ? own.find((each) => isSamePlace(each, hint)) : undefined;
    whole.replace(netns.route, hint);
    undo.defer(() => former ? whole.replace(netns.route, former) : whole.remove(netns.route, hint));
    return former;
  });
  clear(
    place,
    own.filter((each) => !replaced.includes(each) && (each.scope !== RT_SCOPE_LINK || each.family === AF_INET6)),
  );
}

/** True for two routes of IPv4 of which the kernel replaces one by the other. */
function isSamePlace(a: WholeRoute, b: WholeRoute): boolean {
  return whole.destinationOf(a) === whole.destinationOf(b) && (a.priority ?? 0) === (b.priority ?? 0);
}

function append({ netns, undo }: Place, route: WholeRoute): void {
  tolerating("EEXIST", () => {
    whole.append(netns.route, route);
    undo.defer(() => whole.remove(netns.route, route));
  });
}

/** What is so already needs not be done. */
function tolerating(code: string, call: () => void): void {
  try {
    call();
  } catch (error) {
    if (!(error instanceof NetlinkError && error.code === code)) throw error;
  }
}

/** A route in the main table to everywhere, by the link. */
function plainRoute({ index }: Place, address: Cidr): WholeRoute {
  return {
    family: afOf(address),
    dstLength: 0,
    srcLength: 0,
    tos: 0,
    shortTable: RT_TABLE_MAIN,
    protocol: RTPROT_BOOT,
    scope: RT_SCOPE_UNIVERSE,
    type: RTN_UNICAST,
    flags: 0,
    oif: index,
  };
}
