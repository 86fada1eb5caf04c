/**
 * The `dummy` plugin: an interface that leads nowhere and holds addresses.
 *
 * @module
 */
import { dummy } from "../ffi/route/kinds.ts";
import * as link from "../ffi/route/link.ts";
import { expectEqual } from "./kit/interface.ts";
import { addLink } from "./kit/own_link.ts";
import { formatAlias } from "./kit/owner.ts";
import { plugin } from "./kit/plugin.ts";
import { requireIpam } from "./kit/require_ipam.ts";
import { attach, checkAttached, detach, detachMany } from "./kit/single_interface.ts";
import { object } from "./spec/schema.ts";

const KIND = "dummy";

export default plugin({
  name: KIND,
  about: "Gives it addresses on an interface that leads nowhere",
  config: object({}),

  add(call) {
    const { netns, ifname, owner, undo } = call;
    requireIpam(call);
    const device = addLink(netns, { name: ifname, info: dummy({}) }, undo);
    link.set(netns.route, device.index, { alias: formatAlias(owner) });
    // Nobody can answer there, who might have the address too.
    return attach(call, device, true);
  },

  del: (call) => detach(call, KIND),

  delMany: (calls, ipam) => detachMany(calls, ipam, KIND),

  check(call) {
    requireIpam(call);
    const device = checkAttached(call, KIND);
    expectEqual(`kind of "${call.ifname}"`, device.info?.kind, KIND);
  },

  status: (call) => requireIpam(call).status(),
});
