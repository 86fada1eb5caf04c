/**
 * The `macvlan` plugin: an interface with a MAC address of its own on the wire of a master.
 *
 * @module
 */
import { macvlan } from "../../ffi/route/link_kinds.ts";
import {
  MACVLAN_MODE_BRIDGE,
  MACVLAN_MODE_PASSTHRU,
  MACVLAN_MODE_PRIVATE,
  MACVLAN_MODE_VEPA,
} from "../../ffi/route/uapi.ts";
import { expectEqual } from "../lib/protocol/check_failed.ts";
import {
  checkUpperDevice,
  createUpperDevice,
  diagnoseLowerDevice,
  getLowerDevice,
  requireLowerDevice,
} from "../lib/links/lower_device.ts";
import { plugin } from "../lib/protocol/plugin.ts";
import { configureWithConflictDetection } from "../lib/links/address_conflict.ts";
import {
  assignAddresses,
  describeInterface,
  detachInterface,
  detachInterfaces,
} from "../lib/links/single_interface.ts";
import { CniError, Code } from "../../spec/error.ts";
import { macvlanConfig, requestedMacvlanMac } from "./config.ts";

const KIND = "macvlan";

/** What the kernel calls the modes. */
const MODES = {
  bridge: MACVLAN_MODE_BRIDGE,
  private: MACVLAN_MODE_PRIVATE,
  vepa: MACVLAN_MODE_VEPA,
  passthru: MACVLAN_MODE_PASSTHRU,
};

export default plugin({
  name: KIND,
  about: "Puts the container on the wire with its own MAC address",
  config: macvlanConfig,
  args: ["MAC"],

  add(call) {
    const { config } = call;
    const mac = requestedMacvlanMac(config, call.args);
    const lowerDevice = getLowerDevice(call, KIND);
    const { mode, bcqueuelen } = config;
    const device = createUpperDevice(call, lowerDevice, {
      info: macvlan({ mode: MODES[mode], ...bcqueuelen ? { bcQueueLen: bcqueuelen } : {} }),
      mac,
      conflictsWith: ({ info }) => info?.kind !== "vlan",
    });
    // Without a word, a kernel leaves alone what it does not know.
    if (bcqueuelen && macvlan.of(device)?.bcQueueLen === undefined) {
      throw new CniError(
        Code.UnsupportedField,
        `Cannot set bcqueuelen of "${call.ifname}": Linux 5.11 or newer is needed`,
      );
    }
    const result = assignAddresses(call, describeInterface(call, device));
    configureWithConflictDetection(call, lowerDevice, device, result, {
      probeFrom: "container",
      includesLowerDevice: true,
    });
    return result;
  },

  del: (call) => detachInterface(call, KIND),

  delBatch: (calls, ipam) => detachInterfaces(calls, ipam, KIND),

  check(call) {
    const { config, ifname } = call;
    const device = checkUpperDevice(call, KIND);
    const actual = macvlan.of(device);
    expectEqual(`mode of "${ifname}"`, modeName(actual?.mode), config.mode);
    if (config.bcqueuelen) expectEqual(`bcqueuelen of "${ifname}"`, actual?.bcQueueLen, config.bcqueuelen);
    const mac = requestedMacvlanMac(config, call.args);
    if (mac) expectEqual(`MAC address of "${ifname}"`, device.mac, mac);
  },

  status(call) {
    requireLowerDevice(call);
    call.ipam?.status();
  },

  diagnose: (call) => diagnoseLowerDevice(call),
});

function modeName(mode: number | undefined): string | undefined {
  return Object.entries(MODES).find(([, value]) => value === mode)?.[0];
}
