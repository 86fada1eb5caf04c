/**
 * The `ipvlan` plugin: an interface that shares the wire and the MAC address of a master, told from it by its addresses.
 *
 * @module
 */
import { ipvlan } from "../../ffi/route/link_kinds.ts";
import { IPVLAN_MODE_L2, IPVLAN_MODE_L3, IPVLAN_MODE_L3S } from "../../ffi/route/uapi.ts";
import { expectEqual } from "../lib/links/interface.ts";
import {
  checkOnMaster,
  createOnMaster,
  getMaster,
  type Master,
  type MasterConfig,
  masterKeys,
  requireMaster,
} from "../lib/links/lower_device.ts";
import { type AddCall, plugin } from "../lib/protocol/plugin.ts";
import { requireIpam } from "../lib/protocol/require_ipam.ts";
import { attachToSegment } from "../lib/links/address_conflict.ts";
import { assign, describe, detach, detachMany } from "../lib/links/single_interface.ts";
import { ConfigError } from "../../spec/error.ts";
import type { Interface, Result } from "../../spec/result.ts";
import { lazy, object, oneOf, withDefault } from "../../spec/schema.ts";

const KIND = "ipvlan";

/** What the kernel calls the modes. */
const MODES = { l2: IPVLAN_MODE_L2, l3: IPVLAN_MODE_L3, l3s: IPVLAN_MODE_L3S };

export default plugin({
  name: KIND,
  about: "Gives the container an interface that shares wire and MAC address with a master",
  config: lazy(() =>
    object({ ...masterKeys(), mode: withDefault({ ...oneOf("l2", "l3", "l3s"), blank: true }, "l2") })
  ),

  add(call) {
    const { mode } = call.config;
    requireAddresses(call);
    const master = chooseMaster(call);
    const device = createOnMaster(call, master, {
      info: ipvlan({ mode: MODES[mode] }),
      conflictsWith: ({ info }) => info?.kind !== "vlan",
    });
    const result = addressed(call, describe(call, device));
    // Answers to questions in nobody's name go to the master; of the other modes the wire sees no questions.
    attachToSegment(call, master, device, result, { asks: mode === "l2" ? "master" : "nobody", withMaster: true });
    return result;
  },

  del: (call) => detach(call, KIND),

  delMany: (calls, ipam) => detachMany(calls, ipam, KIND),

  check(call) {
    const { config, ifname } = call;
    const mode = ipvlan.of(checkOnMaster(call, KIND))?.mode;
    const name = Object.entries(MODES).find(([, value]) => value === mode)?.[0];
    expectEqual(`mode of "${ifname}"`, name, config.mode);
  },

  status(call) {
    // Behind another plugin, the master is what that one names in its result.
    if (call.ipam || call.config.master !== "") requireMaster(call);
    call.ipam?.status();
  },
});

/** Without addresses nothing can be told to be for this link: either IPAM gives them or an earlier plugin. @throws {ConfigError} */
function requireAddresses(call: AddCall<MasterConfig>): void {
  if (!call.ipam && !call.prevResult?.ips?.length) requireIpam(call);
}

/** Named in the configuration, or the one interface that an earlier plugin told of, or that of the default route. @throws {ConfigError} */
function chooseMaster(call: AddCall<MasterConfig>): Master {
  if (call.config.master !== "" || !call.prevResult) return getMaster(call, KIND);
  const told = (call.prevResult.interfaces ?? []).filter(({ name }) => name !== "");
  if (told.length === 1) return getMaster(call, KIND, told[0]!.name);
  throw new ConfigError(
    "master",
    `given, since prevResult names ${told.length} interfaces and not the one to take`,
    "nothing",
  );
}

/** The addresses are those of IPAM, or without it those that an earlier plugin found. */
function addressed(call: AddCall<MasterConfig>, described: Interface): Result {
  const assigned = assign(call, described);
  if (call.ipam) return assigned;
  const { ips = [], routes, dns } = call.prevResult!;
  return { ...routes && { routes }, ...dns && { dns }, ...assigned, ips: ips.map((ip) => ({ ...ip, interface: 0 })) };
}
