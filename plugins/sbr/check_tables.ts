/**
 * Whether packets from each address still leave by the interface.
 *
 * @module
 */
import { familyOf, ipOf, networkOf, prefixLengthOf } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns.ts";
import * as address from "../../ffi/route/address.ts";
import type { Link } from "../../ffi/route/link.ts";
import * as rule from "../../ffi/route/rule.ts";
import { IFA_F_NOPREFIXROUTE, RT_TABLE_MAIN } from "../../ffi/route/uapi.ts";
import * as whole from "../../ffi/route/raw_route.ts";
import { isOwnTable, leavesBy } from "../lib/links/routes.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { IpConfig } from "../../spec/result.ts";
import { hostOf, type SbrConfig } from "./config.ts";
import { forcedGateway } from "./move_routes.ts";

/** @throws {CniError} naming the first rule or route that is missing, or that is back where it was */
export function checkTables(netns: Netns, device: Link, ips: readonly IpConfig[], config: SbrConfig): void {
  const rules = rule.list(netns.route).filter((each) => each.isBySource);
  const routes = whole.list(netns.route).filter((each) => leavesBy(each, device.index));
  for (const ip of ips) {
    const from = hostOf(ip.address);
    // The kernel takes the first that fits.
    const isPossible = (table: number | undefined) =>
      isOwnTable(table) || table !== undefined && table === config.table;
    const found = rules.find((each) => each.from === from && isPossible(each.table));
    const wanted = config.table === undefined ? "a table of its own" : `table ${config.table}`;
    if (found?.table === undefined) throw failed(`no rule sends what is from ${ipOf(from)} to ${wanted}`);
    if (config.table === undefined) checkTable(netns, device, { ip, table: found.table, config, routes });
    else if (found.table !== config.table) {
      throw failed(`what is from ${ipOf(from)} goes to table ${found.table}, expected ${wanted}`);
    }
  }
}

interface Case {
  readonly ip: IpConfig;
  readonly table: number;
  readonly config: SbrConfig;
  /** Those by the interface, of every table. */
  readonly routes: readonly whole.WholeRoute[];
}

function checkTable(netns: Netns, { index, name }: Link, { ip, table, config, routes }: Case): void {
  const inTable = (number: number) => routes.filter((each) => whole.tableOf(each) === number);
  const forced = forcedGateway(ip, config);
  const defaults = inTable(table).filter((each) => each.dstLength === 0 && each.family === address.afOf(ip.address));
  if (forced && !defaults.some((each) => whole.gatewaysOf(each).includes(forced))) {
    throw failed(`table ${table} lacks the default route via ${forced} dev "${name}"`);
  }
  if (ip.gateway && defaults.length === 0) throw failed(`table ${table} lacks a default route by "${name}"`);
  if (!hasSubnetRoute(netns, index, ip)) return;
  const subnet = networkOf(ip.address);
  const isToSubnet = (each: whole.WholeRoute) => whole.destinationOf(each) === subnet;
  if (!inTable(table).some(isToSubnet)) throw failed(`table ${table} lacks the route to ${subnet} dev "${name}"`);
  const inMain = inTable(RT_TABLE_MAIN).filter(isToSubnet);
  if (config.addSourceHints) {
    if (inMain.some((each) => each.prefsrc === ipOf(ip.address))) return;
    throw failed(`the main table lacks the route to ${subnet} dev "${name}" src ${ipOf(ip.address)}`);
  }
  // In IPv6, routers can announce it anew.
  if (familyOf(subnet) === 4 && inMain.length > 0) {
    throw failed(`the route to ${subnet} dev "${name}" is back in the main table`);
  }
}

/** True if the kernel made a route to the subnet when the interface got the address. */
function hasSubnetRoute(netns: Netns, index: number, ip: IpConfig): boolean {
  if (prefixLengthOf(ip.address) === (familyOf(ip.address) === 4 ? 32 : 128)) return false;
  const held = address.list(netns.route, { index }).find((each) => each.address === ip.address);
  return held !== undefined && (held.flags & IFA_F_NOPREFIXROUTE) === 0;
}

function failed(what: string): CniError {
  return new CniError(Code.Internal, `Check failed: ${what}`);
}
