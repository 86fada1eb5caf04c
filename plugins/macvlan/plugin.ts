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
  lowerDeviceKeys,
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
import { requestedMac, requestedMacKeys } from "../lib/links/requested_mac.ts";
import { CniError, Code } from "../../spec/error.ts";
import { int, lazy, mac, object, oneOf, optional, withDefault } from "../../spec/schema.ts";

const KIND = "macvlan";

const MODES = {
  bridge: MACVLAN_MODE_BRIDGE,
  private: MACVLAN_MODE_PRIVATE,
  vepa: MACVLAN_MODE_VEPA,
  passthru: MACVLAN_MODE_PASSTHRU,
};

export default plugin({
  name: KIND,
  about: "Puts a container on the host's network with its own MAC",
  config: lazy(() =>
    object({
      ...lowerDeviceKeys(),
      ...requestedMacKeys(),
      mode: withDefault({ ...oneOf("bridge", "private", "vepa", "passthru"), emptyIsUnset: true }, "bridge"),
      mac: optional(mac),
      /** Length of the queue of broadcast packets; 0 for the kernel's default. */
      bcqueuelen: withDefault(int({ min: 0, max: 0xffff_ffff }), 0),
    })
  ),
  args: ["MAC"],

  add(call) {
    const { mode, bcqueuelen } = call.config;
    const lowerDevice = getLowerDevice(call, KIND);
    const device = createUpperDevice(call, lowerDevice, {
      info: macvlan({ mode: MODES[mode], ...bcqueuelen ? { bcQueueLen: bcqueuelen } : {} }),
      mac: requestedMac(call.config, call.args),
      conflictsWith: ({ info }) => info?.kind !== "vlan",
    });
    // The kernel ignores unknown attributes.
    if (bcqueuelen && macvlan.of(device)?.bcQueueLen === undefined) {
      const message = `Cannot set bcqueuelen of "${call.ifname}": Linux 5.11 or newer is needed`;
      throw new CniError(Code.UnsupportedField, message);
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
    const mode = Object.entries(MODES).find(([, value]) => value === actual?.mode)?.[0];
    expectEqual(`mode of "${ifname}"`, mode, config.mode);
    if (config.bcqueuelen) expectEqual(`bcqueuelen of "${ifname}"`, actual?.bcQueueLen, config.bcqueuelen);
    const wantedMac = requestedMac(config, call.args);
    if (wantedMac) expectEqual(`MAC address of "${ifname}"`, device.mac, wantedMac);
  },

  status(call) {
    requireLowerDevice(call);
    call.ipam?.status();
  },

  diagnose: (call) => diagnoseLowerDevice(call),
});
