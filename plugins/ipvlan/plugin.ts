import { ipvlan } from "../../ffi/route/link_kinds.ts";
import { IPVLAN_MODE_L2, IPVLAN_MODE_L3, IPVLAN_MODE_L3S } from "../../ffi/route/uapi.ts";
import { expectEqual } from "../lib/protocol/check_failed.ts";
import {
  checkUpperDevice,
  createUpperDevice,
  diagnoseLowerDevice,
  getLowerDevice,
  type LowerDevice,
  type LowerDeviceConfig,
  lowerDeviceKeys,
  requireLowerDevice,
} from "../lib/links/lower_device.ts";
import { type AddCall, plugin, type PluginCall } from "../lib/protocol/plugin.ts";
import { requireIpam } from "../lib/protocol/require_ipam.ts";
import { configureWithConflictDetection } from "../lib/links/address_conflict.ts";
import {
  assignAddresses,
  describeInterface,
  detachInterface,
  detachInterfaces,
} from "../lib/links/single_interface.ts";
import { ConfigError } from "../../spec/error.ts";
import type { Interface, Result } from "../../spec/result.ts";
import { lazy, object, oneOf, withDefault } from "../../spec/schema.ts";

const KIND = "ipvlan";

const MODES = { l2: IPVLAN_MODE_L2, l3: IPVLAN_MODE_L3, l3s: IPVLAN_MODE_L3S };

export default plugin({
  name: KIND,
  about: "Puts a container on the host's network with the host's MAC",
  config: lazy(() =>
    object({ ...lowerDeviceKeys(), mode: withDefault({ ...oneOf("l2", "l3", "l3s"), emptyIsUnset: true }, "l2") })
  ),

  needsPrevResult: ({ ipamType }) => ipamType === undefined,

  add(call) {
    const { mode } = call.config;
    requireAddressSource(call);
    const lowerDevice = chooseLowerDevice(call);
    const device = createUpperDevice(call, lowerDevice, {
      info: ipvlan({ mode: MODES[mode] }),
      conflictsWith: ({ info }) => info?.kind !== "vlan",
    });
    const result = withAddresses(call, describeInterface(call, device));
    // The master gets replies to probes, which have no sender's address. In the other modes no probe leaves.
    configureWithConflictDetection(call, lowerDevice, device, result, {
      probeFrom: mode === "l2" ? "master" : "nobody",
      includesLowerDevice: true,
    });
    return result;
  },

  del: (call) => detachInterface(call, KIND),

  delBatch: (calls, ipam) => detachInterfaces(calls, ipam, KIND),

  check(call) {
    const { config, ifname } = call;
    const mode = ipvlan.of(checkUpperDevice(call, KIND))?.mode;
    const name = Object.entries(MODES).find(([, value]) => value === mode)?.[0];
    expectEqual(`mode of "${ifname}"`, name, config.mode);
  },

  status(call) {
    if (hasOwnMaster(call)) requireLowerDevice(call);
    call.ipam?.status();
  },

  diagnose: (call) => call.attachment || hasOwnMaster(call) ? diagnoseLowerDevice(call) : [],
});

/** False after another plugin: the master is then an interface of its result. */
function hasOwnMaster({ ipam, config }: PluginCall<LowerDeviceConfig>): boolean {
  return ipam !== undefined || config.master !== "";
}

/** The kernel recognises packets for this link only by addresses, from IPAM or an earlier plugin. @throws {ConfigError} */
function requireAddressSource(call: AddCall<LowerDeviceConfig>): void {
  if (!call.ipam && !call.prevResult?.ips?.length) requireIpam(call);
}

/** Chosen by the configuration, else by the only interface of prevResult, else by the default route. @throws {ConfigError} */
function chooseLowerDevice(call: AddCall<LowerDeviceConfig>): LowerDevice {
  if (call.config.master !== "" || !call.prevResult) return getLowerDevice(call, KIND);
  const reported = (call.prevResult.interfaces ?? []).filter(({ name }) => name !== "");
  if (reported.length === 1) return getLowerDevice(call, KIND, reported[0]!.name);
  const requirement = `given, since prevResult names ${reported.length} interfaces and not which one to use`;
  throw new ConfigError("master", requirement, "nothing");
}

/** Without IPAM, the addresses are an earlier plugin's. */
function withAddresses(call: AddCall<LowerDeviceConfig>, containerInterface: Interface): Result {
  const ipamResult = assignAddresses(call, containerInterface);
  if (call.ipam) return ipamResult;
  const { ips = [], routes, dns } = call.prevResult!;
  return { ...routes && { routes }, ...dns && { dns }, ...ipamResult, ips: ips.map((ip) => ({ ...ip, interface: 0 })) };
}
