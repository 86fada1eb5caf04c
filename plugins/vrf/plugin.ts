/** The `vrf` plugin, virtual routing and forwarding: gives the container's interface its own routing table. */
import type { PluginModel } from "../lib/model/plugin_model.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { vrf as vrfKind } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import { ownedByOtherContainer } from "../lib/links/ownership.ts";
import { takeAwayOrLog } from "../lib/links/container_refusal.ts";
import { removeLinkIfPresent } from "../lib/links/container_link.ts";
import { lockRoutingTables, tryLockRoutingTables } from "../lib/links/routing_table_lock.ts";
import { type DelCall, plugin, requirePrevResult, runAllSteps } from "../lib/protocol/plugin.ts";
import { CniError, Code } from "../../spec/error.ts";
import { requireVrfName, type VrfConfig, vrfConfig } from "./config.ts";
import { addToVrf, removeFromVrf } from "./membership.ts";
import { ensureVrf } from "./vrf_device.ts";

export default plugin({
  name: "vrf",
  about: "Puts the interface into a VRF with its own routing table",
  config: vrfConfig,
  model: (): PluginModel => require("./model.ts").default,

  needsPrevResult: () => true,

  validate: ({ config }) => requireVrfName(config),

  add(call) {
    const { config, netns, ifname, undo } = call;
    requireVrfName(config);
    const result = requirePrevResult(call, "vrf");
    using _lock = lockRoutingTables(netns);
    const device = link.get(netns.route, ifname);
    refuseOtherMaster(netns, device, config.vrfname);
    const vrf = ensureVrf(netns, config, undo);
    if (device.master === vrf.index) return result;
    addToVrf(netns, device, vrf, undo);
    return result;
  },

  /** Tolerates the container's addresses and routes: they must not keep it attached. */
  del(call) {
    const { config: { vrfname }, netns, log } = call;
    // An ADD without a name has failed.
    if (!netns || vrfname === "") return;
    using _lock = tryLockRoutingTables(netns, log);
    takeAwayOrLog(log, () => release(call, netns));
  },

  check(call) {
    requireVrfName(call.config);
    requirePrevResult(call, "vrf");
    loadWanted().checkVrf(call);
  },

  /** Everything ends with the container's namespace. */
  gc() {},

  status: ({ config }) => requireVrfName(config),
});

/** ADD and DEL do without it. */
function loadWanted(): typeof import("./wanted.ts") {
  return require("./wanted.ts");
}

/** Removes the VRF with its last interface. */
function release(call: DelCall<VrfConfig>, netns: Netns): void {
  const { config: { vrfname }, ifname, log } = call;
  const vrf = link.find(netns.route, vrfname);
  if (!vrf || !vrfKind.of(vrf)) return;
  const device = link.find(netns.route, ifname);
  if (ownedByOtherContainer(call, netns, device)) return;
  runAllSteps(
    () => device?.master === vrf.index && removeFromVrf(netns, device, vrf, log),
    () => link.list(netns.route, { master: vrf.index }).length === 0 && removeLinkIfPresent(netns, vrfname),
  );
}

function findLinkName(netns: Netns, index: number | undefined): string | undefined {
  return index === undefined ? undefined : link.find(netns.route, index)?.name;
}

function refuseOtherMaster(netns: Netns, { name, master }: link.Link, vrfname: string): void {
  const other = findLinkName(netns, master);
  if (other === undefined || other === vrfname) return;
  throw new CniError(Code.InvalidConfig, `Cannot put "${name}" into VRF "${vrfname}": it is a port of "${other}"`, {
    details: `take it out first: ip link set ${name} nomaster`,
  });
}
