/**
 * The `sbr` plugin, source based routing: packets from an address of the interface leave by the interface.
 *
 * Each address gets a rule and a table, which takes the interface's routes.
 */
import type { PluginModel } from "../lib/model/plugin_model.ts";
import { hostPrefix, ipOf } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import * as address from "../../ffi/route/address.ts";
import * as link from "../../ffi/route/link.ts";
import { ownedByOtherContainer } from "../lib/links/ownership.ts";
import { takeAwayOrLog } from "../lib/links/container_refusal.ts";
import { lockRoutingTables, tryLockRoutingTables } from "../lib/links/routing_table_lock.ts";
import { type AddCall, type CheckCall, type DelCall, plugin, requirePrevResult } from "../lib/protocol/plugin.ts";
import { checkTables } from "./check_tables.ts";
import { containerIps } from "../lib/links/container_ips.ts";
import { requireContainerIps, type SbrConfig, sbrConfig } from "./config.ts";
import { addSourceRules, moveRoutesToTables } from "./move_routes.ts";
import { removeSourceRules } from "./remove_rules.ts";
import type { Result } from "../../spec/result.ts";

export default plugin<SbrConfig>({
  name: "sbr",
  about: "Routes packets by their source address",
  config: sbrConfig,
  model: (): PluginModel => require("./model.ts").default,

  needsPrevResult: () => true,

  add(call: AddCall<SbrConfig>): Result {
    const { netns, ifname, config, undo } = call;
    const result = requirePrevResult(call, "sbr");
    const ips = requireContainerIps(result, ifname);
    using _lock = lockRoutingTables(netns);
    const context = { netns, index: link.get(netns.route, ifname).index, undo };
    if (config.table === undefined) moveRoutesToTables(context, ips, config);
    else addSourceRules(context, ips, config.table);
    return result;
  },

  /** Tolerates the container's changes: they must not keep it attached. */
  del(call: DelCall<SbrConfig>) {
    const { netns, log } = call;
    if (!netns) return;
    using _lock = tryLockRoutingTables(netns, log);
    takeAwayOrLog(log, () => removeRules(call, netns));
  },

  check(call: CheckCall<SbrConfig>) {
    const { netns, ifname, config } = call;
    const ips = requireContainerIps(requirePrevResult(call, "sbr"), ifname);
    checkTables(netns, link.get(netns.route, ifname), ips, config);
  },

  /** Rules and routes end with the container's namespace. */
  gc() {},

  status() {},
});

function removeRules(call: DelCall<SbrConfig>, netns: Netns): void {
  const { ifname, config, prevResult, log } = call;
  const device = link.find(netns.route, ifname);
  if (ownedByOtherContainer(call, netns, device)) return;
  const index = device?.index;
  const present = index === undefined ? [] : address.list(netns.route, { index });
  const reported = prevResult ? containerIps(prevResult, ifname) : [];
  const sources = new Set([...present, ...reported].map((ip) => hostPrefix(ipOf(ip.address))));
  removeSourceRules(netns, { sources, index, table: config.table }, log);
}
