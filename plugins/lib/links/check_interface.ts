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

/** @throws {CniError} if `prevResult` has no such interface */
export function requireContainerInterface(result: Result, ifname: string, sandbox: string): Interface {
  const reported = findContainerInterface(result, ifname);
  if (!reported) throw checkFailedError(`prevResult names no interface "${ifname}" in a container`);
  expectEqual(`sandbox of "${ifname}" in prevResult`, reported.sandbox, sandbox);
  return reported;
}

function findContainerInterface({ interfaces }: Result, ifname: string): Interface | undefined {
  return interfaces?.find(({ name, sandbox }) => name === ifname && sandbox);
}

/** Compares the container's interface and routes with a result. @throws {CniError} on the first difference */
export function expectConfigured(netns: Netns, ifname: string, result: Result): link.Link {
  const device = link.find(netns.route, ifname);
  if (!device) throw checkFailedError(`interface "${ifname}" is missing in "${netns.path}"`);
  const mac = findContainerInterface(result, ifname)?.mac?.toLowerCase();
  if (mac) expectEqual<string | undefined>(`MAC address of "${ifname}"`, device.mac, mac);
  const ips = ipsOf(result, ifname);
  if (ips.length > 0) expectEqual(`administrative state of "${ifname}"`, link.isUp(device) ? "up" : "down", "up");
  const present = new Set(address.list(netns.route, { index: device.index }).map((element) => element.address));
  const missing = ips.find((ip) => !present.has(ip.address));
  if (missing) throw checkFailedError(`"${ifname}" lacks address ${missing.address}`);
  for (const wanted of routesWithGateways(result, ips)) expectRoute(netns, device, wanted);
  return device;
}

/** Checks for a route, also where a later plugin may have moved it. @throws {CniError} */
export function expectRoute(netns: Netns, device: link.Link, wanted: RouteConfig): void {
  const family = familyOf(wanted.dst) === 4 ? AF_INET : AF_INET6;
  const isIn = (table: number, gateway: Ip | undefined) =>
    route.list(netns.route, family, table).some((candidate) =>
      candidate.oif === device.index && candidate.dst === networkOf(wanted.dst) &&
      (gateway === undefined || candidate.gateway === gateway)
    );
  if (isIn(wanted.table ?? RT_TABLE_MAIN, wanted.gw)) return;
  // sbr may change the default gateway; its own CHECK compares that.
  const isMoved = (table: number) => isIn(table, prefixLengthOf(wanted.dst) === 0 ? undefined : wanted.gw);
  const otherTables = wanted.table === undefined
    ? [...vrfTablesOf(netns, device), ...sourceRuleTablesOf(netns, device)]
    : [];
  if (otherTables.some(isMoved)) return;
  const via = wanted.gw ? ` via ${wanted.gw}` : "";
  throw checkFailedError(`"${device.name}" lacks the route to ${wanted.dst}${via}`);
}

function vrfTablesOf(netns: Netns, { master }: link.Link): number[] {
  const vrfLink = master === undefined ? undefined : link.find(netns.route, master);
  const table = vrfLink && vrf.of(vrfLink)?.table;
  return table === undefined ? [] : [table];
}

/** sbr moves routes to these tables. */
function sourceRuleTablesOf(netns: Netns, { index }: link.Link): number[] {
  const ips = address.list(netns.route, { index }).map((entry) => ipOf(entry.address));
  return rule.list(netns.route).flatMap(({ from, isSourceOnly, table = RT_TABLE_MAIN }) =>
    from && isSourceOnly && ips.some((ip) => containsIp(from, ip)) ? [table] : []
  );
}
