import { vlan } from "../../ffi/route/link_kinds.ts";
import { expectEqual } from "../lib/protocol/check_failed.ts";
import {
  checkUpperDevice,
  createUpperDevice,
  diagnoseLowerDevice,
  getLowerDevice,
  type LowerDeviceConfig,
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
import { ConfigError } from "../../spec/error.ts";
import { int, lazy, object, withDefault } from "../../spec/schema.ts";

const KIND = "vlan";

export default plugin({
  name: KIND,
  about: "Connects the container to a VLAN on a host interface",
  config: lazy(() => object({ ...lowerDeviceKeys(), vlanId: withDefault(int({ min: 0, max: 4094 }), 0) })),

  validate: ({ config }) => requireConfiguredMaster(config),

  add(call) {
    const { vlanId } = call.config;
    requireConfiguredMaster(call.config);
    const lowerDevice = getLowerDevice(call, KIND);
    const device = createUpperDevice(call, lowerDevice, {
      info: vlan({ id: vlanId }),
      conflictsWith: (other) => vlan.of(other)?.id === vlanId,
    });
    const result = assignAddresses(call, describeInterface(call, device));
    configureWithConflictDetection(call, lowerDevice, device, result, {
      probeFrom: "container",
      includesLowerDevice: false,
    });
    return result;
  },

  del: (call) => detachInterface(call, KIND),

  delBatch: (calls, ipam) => detachInterfaces(calls, ipam, KIND),

  check(call) {
    requireConfiguredMaster(call.config);
    const actual = vlan.of(checkUpperDevice(call, KIND));
    expectEqual(`VLAN of "${call.ifname}"`, actual?.id, call.config.vlanId);
  },

  status(call) {
    requireConfiguredMaster(call.config);
    requireLowerDevice(call);
    call.ipam?.status();
  },

  diagnose: (call) => diagnoseLowerDevice(call),
});

/** A guess could choose the wrong wire. @throws {ConfigError} */
function requireConfiguredMaster({ master }: LowerDeviceConfig): void {
  if (master === "") throw new ConfigError("master", "the name of the interface under the VLAN", "nothing");
}
