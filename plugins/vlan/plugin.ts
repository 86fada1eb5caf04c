/**
 * The `vlan` plugin: an interface in a VLAN of the wire of a master.
 *
 * @module
 */
import { vlan } from "../../ffi/route/link_kinds.ts";
import { expectEqual } from "../lib/links/interface.ts";
import {
  checkOnMaster,
  createOnMaster,
  getMaster,
  type MasterConfig,
  masterKeys,
  requireMaster,
} from "../lib/links/lower_device.ts";
import { plugin } from "../lib/protocol/plugin.ts";
import { attachToSegment } from "../lib/links/address_conflict.ts";
import { assign, describe, detach, detachMany } from "../lib/links/single_interface.ts";
import { ConfigError } from "../../spec/error.ts";
import { int, lazy, object, withDefault } from "../../spec/schema.ts";

const KIND = "vlan";

export default plugin({
  name: KIND,
  about: "Gives the container an interface in a VLAN of a master",
  config: lazy(() => object({ ...masterKeys(), vlanId: withDefault(int({ min: 0, max: 4094 }), 0) })),

  add(call) {
    const { vlanId } = call.config;
    requireNamed(call.config);
    const master = getMaster(call, KIND);
    const device = createOnMaster(call, master, {
      info: vlan({ id: vlanId }),
      conflictsWith: (other) => vlan.of(other)?.id === vlanId,
    });
    const result = assign(call, describe(call, device));
    attachToSegment(call, master, device, result, { asks: "container", withMaster: false });
    return result;
  },

  del: (call) => detach(call, KIND),

  delMany: (calls, ipam) => detachMany(calls, ipam, KIND),

  check(call) {
    requireNamed(call.config);
    const actual = vlan.of(checkOnMaster(call, KIND));
    expectEqual(`VLAN of "${call.ifname}"`, actual?.id, call.config.vlanId);
  },

  status(call) {
    requireNamed(call.config);
    requireMaster(call);
    call.ipam?.status();
  },
});

/** A guess would put the container into a VLAN of the wrong wire. @throws {ConfigError} */
function requireNamed({ master }: MasterConfig): void {
  if (master === "") throw new ConfigError("master", "the interface whose VLAN it is to be", "nothing");
}
