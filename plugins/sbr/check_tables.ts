import { checkFailedError } from "../lib/protocol/check_failed.ts";
import { familyOf, hostPrefix, ipOf, isHostPrefix, networkOf } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import * as address from "../../ffi/route/address.ts";
import type { Link } from "../../ffi/route/link.ts";
import * as rule from "../../ffi/route/rule.ts";
import { IFA_F_NOPREFIXROUTE, RT_TABLE_MAIN } from "../../ffi/route/uapi.ts";
import * as rawRoute from "../../ffi/route/raw_route.ts";
import { isCustomTable, usesOnlyLink } from "../lib/links/routes.ts";
import type { IpConfig } from "../../spec/result.ts";
import type { SbrConfig } from "./config.ts";
import { configuredGateway } from "./move_routes.ts";

export function checkTables(netns: Netns, device: Link, ips: readonly IpConfig[], config: SbrConfig): void {
  const rules = rule.list(netns.route).filter((candidate) => candidate.isSourceOnly);
  const routes = rawRoute.list(netns.route).filter((route) => usesOnlyLink(route, device.index));
  for (const ip of ips) {
    const from = hostPrefix(ipOf(ip.address));
    // The kernel takes the first matching rule.
    const isPossible = (table: number | undefined) =>
      isCustomTable(table) || table !== undefined && table === config.table;
    const match = rules.find((candidate) => candidate.from === from && isPossible(candidate.table));
    const expected = config.table === undefined ? "a table of its own" : `table ${config.table}`;
    if (match?.table === undefined) throw checkFailedError(`no rule sends packets from ${ipOf(from)} to ${expected}`);
    if (config.table === undefined) checkTable(netns, device, { ip, table: match.table, config, routes });
    else if (match.table !== config.table) {
      throw checkFailedError(`a rule sends packets from ${ipOf(from)} to table ${match.table}, expected ${expected}`);
    }
  }
}

interface TableCheck {
  readonly ip: IpConfig;
  readonly table: number;
  readonly config: SbrConfig;
  /** The interface's, in all tables. */
  readonly routes: readonly rawRoute.RawRoute[];
}

function checkTable(netns: Netns, { index, name }: Link, { ip, table, config, routes }: TableCheck): void {
  const inTable = (number: number) => routes.filter((route) => rawRoute.tableOf(route) === number);
  const fixedGateway = configuredGateway(ip, config);
  const defaults = inTable(table).filter((route) =>
    route.dstLen === 0 && route.family === address.addressFamily(ip.address)
  );
  if (fixedGateway && !defaults.some((route) => rawRoute.nextHopGateways(route).includes(fixedGateway))) {
    throw checkFailedError(`table ${table} lacks the default route via ${fixedGateway} dev "${name}"`);
  }
  if (ip.gateway && defaults.length === 0) throw checkFailedError(`table ${table} lacks a default route by "${name}"`);
  if (!hasSubnetRoute(netns, index, ip)) return;
  const subnet = networkOf(ip.address);
  const isToSubnet = (route: rawRoute.RawRoute) => rawRoute.destinationOf(route) === subnet;
  if (!inTable(table).some(isToSubnet)) {
    throw checkFailedError(`table ${table} lacks the route to ${subnet} dev "${name}"`);
  }
  const inMain = inTable(RT_TABLE_MAIN).filter(isToSubnet);
  if (config.addSourceHints) {
    if (inMain.some((route) => route.prefsrc === ipOf(ip.address))) return;
    throw checkFailedError(`the main table lacks the route to ${subnet} dev "${name}" src ${ipOf(ip.address)}`);
  }
  // In IPv6, a router may announce it again.
  if (familyOf(subnet) === 4 && inMain.length > 0) {
    throw checkFailedError(`the route to ${subnet} dev "${name}" is back in the main table`);
  }
}

/** True if the kernel added a route with the address. */
function hasSubnetRoute(netns: Netns, index: number, ip: IpConfig): boolean {
  if (isHostPrefix(ip.address)) return false;
  const found = address.list(netns.route, { index }).find((candidate) => candidate.address === ip.address);
  return found !== undefined && (found.flags & IFA_F_NOPREFIXROUTE) === 0;
}
