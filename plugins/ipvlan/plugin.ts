/**
 * The `ipvlan` plugin: an interface that shares the wire and the MAC address of a master, told from it by its addresses.
 *
 * @module
 */
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
import { ipvlanConfig } from "./config.ts";

const KIND = "ipvlan";

/** What the kernel calls the modes. */
const MODES = { l2: IPVLAN_MODE_L2, l3: IPVLAN_MODE_L3, l3s: IPVLAN_MODE_L3S };

export default plugin({
  name: KIND,
  about: "Puts the container on the wire with the host's MAC address",
  config: ipvlanConfig,

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
    // Answers to questions in nobody's name go to the master; of the other modes the wire sees no questions.
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

/** Behind another plugin, the master is what that one names in its result. */
function hasOwnMaster({ ipam, config }: PluginCall<LowerDeviceConfig>): boolean {
  return ipam !== undefined || config.master !== "";
}

/** Without addresses nothing can be told to be for this link: either IPAM gives them or an earlier plugin. @throws {ConfigError} */
function requireAddressSource(call: AddCall<LowerDeviceConfig>): void {
  if (!call.ipam && !call.prevResult?.ips?.length) requireIpam(call);
}

/** Named in the configuration, or the one interface that an earlier plugin told of, or that of the default route. @throws {ConfigError} */
function chooseLowerDevice(call: AddCall<LowerDeviceConfig>): LowerDevice {
  if (call.config.master !== "" || !call.prevResult) return getLowerDevice(call, KIND);
  const reported = (call.prevResult.interfaces ?? []).filter(({ name }) => name !== "");
  if (reported.length === 1) return getLowerDevice(call, KIND, reported[0]!.name);
  throw new ConfigError(
    "master",
    `given, since prevResult names ${reported.length} interfaces and not the one to take`,
    "nothing",
  );
}

/** The addresses are those of IPAM, or without it those that an earlier plugin found. */
function withAddresses(call: AddCall<LowerDeviceConfig>, containerInterface: Interface): Result {
  const ipamResult = assignAddresses(call, containerInterface);
  if (call.ipam) return ipamResult;
  const { ips = [], routes, dns } = call.prevResult!;
  return { ...routes && { routes }, ...dns && { dns }, ...ipamResult, ips: ips.map((ip) => ({ ...ip, interface: 0 })) };
}
