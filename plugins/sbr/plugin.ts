/**
 * The `sbr` plugin, source based routing: what is from an address of the interface leaves by the interface, whatever the main table says.
 *
 * Each address gets a rule and a table of its own, to which the routes of the interface move.
 *
 * @module
 */
import * as address from "../../ffi/route/address.ts";
import * as link from "../../ffi/route/link.ts";
import { isBesideAnothers } from "../lib/links/ownership.ts";
import { lockTables, lockTablesIfFree } from "../lib/links/routing_table_lock.ts";
import { type AddCall, type CheckCall, type DelCall, plugin, requirePrevResult } from "../lib/protocol/plugin.ts";
import { checkTables } from "./check_tables.ts";
import { hostOf, ownIps, requireIps, type SbrConfig, sbrConfig } from "./config.ts";
import { addRules, moveRoutes } from "./move_routes.ts";
import { removeRules } from "./remove_rules.ts";
import type { Result } from "../../spec/result.ts";

export default plugin<SbrConfig>({
  name: "sbr",
  about: "Routes what is from its addresses by the interface",
  config: sbrConfig,

  add(call: AddCall<SbrConfig>): Result {
    const { netns, ifname, config, undo } = call;
    const result = requirePrevResult(call, "sbr");
    const ips = requireIps(result, ifname);
    using _lock = lockTables(netns);
    const place = { netns, index: link.get(netns.route, ifname).index, undo };
    if (config.table === undefined) moveRoutes(place, ips, config);
    else addRules(place, ips, config.table);
    return result;
  },

  del(call: DelCall<SbrConfig>) {
    const { netns, ifname, config, prevResult, log } = call;
    if (!netns) return;
    using _lock = lockTablesIfFree(netns, log);
    const device = link.find(netns.route, ifname);
    if (isBesideAnothers(call, netns, device)) return;
    const index = device?.index;
    const present = index === undefined ? [] : address.list(netns.route, { index });
    const given = prevResult ? ownIps(prevResult, ifname) : [];
    const sources = new Set([...present, ...given].map((each) => hostOf(each.address)));
    removeRules(netns, { sources, index, table: config.table });
  },

  check(call: CheckCall<SbrConfig>) {
    const { netns, ifname, config } = call;
    const ips = requireIps(requirePrevResult(call, "sbr"), ifname);
    checkTables(netns, link.get(netns.route, ifname), ips, config);
  },

  /** All there is is in the container's namespace, and goes with it. */
  gc() {},

  status() {},
});
