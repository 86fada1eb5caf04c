import {
  type Cidr,
  containsIp,
  familyOf,
  hostPrefix,
  type Ip,
  ipOf,
  networkOf,
  prefixLengthOf,
} from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { addressFamily } from "../../ffi/route/address.ts";
import * as rule from "../../ffi/route/rule.ts";
import * as rawRoute from "../../ffi/route/raw_route.ts";
import type { RawRoute } from "../../ffi/route/raw_route.ts";
import { RT_SCOPE_LINK, RT_SCOPE_UNIVERSE, RT_TABLE_MAIN, RTN_UNICAST, RTPROT_BOOT } from "../../ffi/route/uapi.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { AF_INET6 } from "../../ffi/sys/uapi.ts";
import type { IpConfig } from "../../spec/result.ts";
import { compareGatewayDependence, freeTableIds, usesOnlyLink } from "../lib/links/routes.ts";
import type { SbrConfig } from "./config.ts";

const FIRST_TABLE = 100;

/** What the kernel gives a route without a metric. */
const IPV6_METRIC = 1024;

export interface RoutingContext {
  readonly netns: Netns;
  readonly index: number;
  readonly undo: DisposableStack;
}

export function addSourceRules(context: RoutingContext, ips: readonly IpConfig[], table: number): void {
  const present = rule.list(context.netns.route);
  for (const from of ips.map((ip) => hostPrefix(ipOf(ip.address)))) {
    if (
      present.some((sourceRule) => sourceRule.isSourceOnly && sourceRule.from === from && sourceRule.table === table)
    ) continue;
    addSourceRule(context, { from, table });
  }
}

function addSourceRule({ netns, undo }: RoutingContext, wanted: rule.SourceRule): void {
  rule.add(netns.route, wanted);
  undo.defer(() => rule.remove(netns.route, wanted));
}

export function moveRoutesToTables(context: RoutingContext, ips: readonly IpConfig[], config: SbrConfig): void {
  const { netns, index } = context;
  const routes = rawRoute.list(netns.route);
  const mainRoutes = routes.filter((route) => rawRoute.tableOf(route) === RT_TABLE_MAIN && usesOnlyLink(route, index));
  const tables = freeTableIds(FIRST_TABLE, rule.list(netns.route), routes);
  for (const ip of ips) {
    const table = tables.next().value;
    addSourceRule(context, { from: hostPrefix(ipOf(ip.address)), table });
    fillTable(context, table, ip, routesForAddress(ip, ips, mainRoutes), config);
  }
  if (config.addSourceHints) addHintRoutes(context, ips, mainRoutes);
  else removeFromMain(context, mainRoutes);
}

function fillTable(
  context: RoutingContext,
  table: number,
  ip: IpConfig,
  mainRoutes: readonly RawRoute[],
  config: SbrConfig,
): void {
  const fixedGateway = configuredGateway(ip, config);
  const isDefaultRoute = (route: RawRoute) => route.family === addressFamily(ip.address) && route.dstLen === 0;
  // A configured gateway makes the only default route.
  const copied = fixedGateway ? mainRoutes.filter((route) => !isDefaultRoute(route)) : mainRoutes;
  for (const route of copied.toSorted(compareGatewayDependence)) appendRoute(context, rawRoute.withTable(route, table));
  const gateway = fixedGateway ?? ip.gateway;
  const metric = familyOf(ip.address) === 4 ? 0 : IPV6_METRIC;
  if (!gateway || copied.some((route) => isDefaultRoute(route) && (route.priority ?? 0) === metric)) return;
  appendRoute(context, rawRoute.withTable({ ...defaultRouteVia(context, ip.address), gateway }, table));
}

export function configuredGateway(ip: IpConfig, { gateways }: SbrConfig): Ip | undefined {
  return gateways.find((gateway) => familyOf(gateway) === familyOf(ip.address));
}

/** Routes with a gateway or source in the address's subnet, in no address's subnet, or without both. */
function routesForAddress(ip: IpConfig, ips: readonly IpConfig[], mainRoutes: readonly RawRoute[]): RawRoute[] {
  return mainRoutes.filter((route) => {
    const neighbours = [...route.prefsrc ? [route.prefsrc] : [], ...rawRoute.nextHopGateways(route)];
    const isInSubnet = ({ address }: IpConfig) =>
      neighbours.some((neighbour) => containsIp(networkOf(address), neighbour));
    return neighbours.length === 0 || isInSubnet(ip) ||
      (route.family === addressFamily(ip.address) && !ips.some(isInSubnet));
  });
}

function removeFromMain({ netns, undo }: RoutingContext, routes: readonly RawRoute[]): void {
  // Routes to gateways are removed last and restored first.
  for (const route of routes.toSorted(compareGatewayDependence).toReversed()) {
    ignoreErrors(["ESRCH"], () => {
      rawRoute.remove(netns.route, route);
      undo.defer(() => rawRoute.append(netns.route, route));
    });
  }
}

/** Leaves subnet routes in the main table, so that programs without a source address get the right one. */
function addHintRoutes(context: RoutingContext, ips: readonly IpConfig[], mainRoutes: readonly RawRoute[]): void {
  const { netns, undo } = context;
  const replaced = ips.map(({ address }) => {
    const hint = {
      ...defaultRouteVia(context, address),
      dst: ipOf(networkOf(address)),
      dstLen: prefixLengthOf(address),
      prefsrc: ipOf(address),
      scope: RT_SCOPE_LINK,
    };
    const replacedRoute = familyOf(address) === 4 ? mainRoutes.find((route) => isReplacedBy(route, hint)) : undefined;
    rawRoute.replace(netns.route, hint);
    undo.defer(() => replacedRoute ? rawRoute.replace(netns.route, replacedRoute) : rawRoute.remove(netns.route, hint));
    return replacedRoute;
  });
  removeFromMain(
    context,
    mainRoutes.filter((route) =>
      !replaced.includes(route) && (route.scope !== RT_SCOPE_LINK || route.family === AF_INET6)
    ),
  );
}

/** Whether the kernel lets two IPv4 routes replace each other. */
function isReplacedBy(a: RawRoute, b: RawRoute): boolean {
  return rawRoute.destinationOf(a) === rawRoute.destinationOf(b) && (a.priority ?? 0) === (b.priority ?? 0);
}

function appendRoute({ netns, undo }: RoutingContext, route: RawRoute): void {
  ignoreErrors(["EEXIST"], () => {
    rawRoute.append(netns.route, route);
    undo.defer(() => rawRoute.remove(netns.route, route));
  });
}

function defaultRouteVia({ index }: RoutingContext, address: Cidr): RawRoute {
  return {
    family: addressFamily(address),
    dstLen: 0,
    srcLen: 0,
    tos: 0,
    shortTable: RT_TABLE_MAIN,
    protocol: RTPROT_BOOT,
    scope: RT_SCOPE_UNIVERSE,
    type: RTN_UNICAST,
    flags: 0,
    oif: index,
  };
}
