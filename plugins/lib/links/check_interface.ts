/**
 * What CHECK compares of the container's interface: link, addresses and routes with a result.
 *
 * @module
 */
import { containsIp, familyOf, type Ip, ipOf, networkOf, prefixLengthOf } from "../../../ffi/address.ts";
import * as address from "../../../ffi/route/address.ts";
import * as link from "../../../ffi/route/link.ts";
import { vrf } from "../../../ffi/route/link_kinds.ts";
import * as route from "../../../ffi/route/route.ts";
import * as rule from "../../../ffi/route/rule.ts";
import { RT_TABLE_MAIN } from "../../../ffi/route/uapi.ts";
import { AF_INET, AF_INET6 } from "../../../ffi/sys/uapi.ts";
import type { Netns } from "../../../ffi/netns.ts";
import type { Interface, Result } from "../../../spec/result.ts";
import type { RouteConfig } from "../../../spec/schema.ts";
import { checkFailedError, expectEqual } from "../protocol/check_failed.ts";
import { ipsOf, routesWithGateways } from "./configure_interface.ts";

/** The interface that ADD reported as the container's. @throws {CniError} */
export function requireContainerInterface(result: Result, ifname: string, sandbox: string): Interface {
  const reported = result.interfaces?.find((element) => element.name === ifname && element.sandbox);
  if (!reported) {
    throw checkFailedError(`prevResult names no interface "${ifname}" in a container`);
  }
  expectEqual(`sandbox of "${ifname}" in prevResult`, reported.sandbox, sandbox);
  return reported;
}

/** Checks link, MAC, addresses and routes of the container's interface against a result. @throws {CniError} on the first difference */
export function expectConfigured(netns: Netns, ifname: string, result: Result): link.Link {
  const device = link.find(netns.route, ifname);
  if (!device) throw checkFailedError(`interface "${ifname}" is missing in "${netns.path}"`);
  const reported = result.interfaces?.find((element) => element.name === ifname && element.sandbox);
  if (reported?.mac) {
    expectEqual(`MAC address of "${ifname}"`, device.mac as string | undefined, reported.mac.toLowerCase());
  }
  const ips = ipsOf(result, ifname);
  if (ips.length > 0) expectEqual(`administrative state of "${ifname}"`, link.isUp(device) ? "up" : "down", "up");
  const present = new Set(address.list(netns.route, { index: device.index }).map((element) => element.address));
  for (const ip of ips) {
    if (!present.has(ip.address)) {
      throw checkFailedError(`"${ifname}" lacks address ${ip.address}`);
    }
  }
  for (const wanted of routesWithGateways(result, ips)) expectRoute(netns, device, wanted);
  return device;
}

/** Checks that a route leads out of the interface, where it was put or where a later plugin has moved it. @throws {CniError} */
export function expectRoute(netns: Netns, device: link.Link, wanted: RouteConfig): void {
  const family = familyOf(wanted.dst) === 4 ? AF_INET : AF_INET6;
  const isIn = (table: number, gateway: Ip | undefined) =>
    route.list(netns.route, family, table).some((candidate) =>
      candidate.oif === device.index && candidate.dst === networkOf(wanted.dst) &&
      (gateway === undefined || candidate.gateway === gateway)
    );
  if (isIn(wanted.table ?? RT_TABLE_MAIN, wanted.gw)) return;
  // That plugin's configuration may name another gateway for what is from the address; it sees to it itself.
  const isMoved = (table: number) => isIn(table, prefixLengthOf(wanted.dst) === 0 ? undefined : wanted.gw);
  if (
    wanted.table === undefined && [...vrfTablesOf(netns, device), ...sourceRuleTablesOf(netns, device)].some(isMoved)
  ) return;
  const via = wanted.gw ? ` via ${wanted.gw}` : "";
  throw checkFailedError(`"${device.name}" lacks the route to ${wanted.dst}${via}`);
}

/** The table of the VRF that the interface is in, if it is in one: a later plugin of the list may have put it there. */
function vrfTablesOf(netns: Netns, { master }: link.Link): number[] {
  const vrfLink = master === undefined ? undefined : link.find(netns.route, master);
  const table = vrfLink && vrf.of(vrfLink)?.table;
  return table === undefined ? [] : [table];
}

/** The tables for what is from an address of the interface: a later plugin of the list may have moved the routes there. */
function sourceRuleTablesOf(netns: Netns, { index }: link.Link): number[] {
  const linkAddresses = address.list(netns.route, { index }).map((element) => ipOf(element.address));
  return rule.list(netns.route).flatMap(({ from, isSourceOnly, table = RT_TABLE_MAIN }) =>
    from && isSourceOnly && linkAddresses.some((element) => containsIp(from, element)) ? [table] : []
  );
}
