/**
 * The `dummy` plugin: an interface that leads nowhere and holds addresses.
 *
 * @module
 */
import { dummy } from "../ffi/route/kinds.ts";
import { expectEqual, removeIfPresent } from "./kit/interface.ts";
import { addLink, removeOfKind } from "./kit/own_link.ts";
import { cleanUp, plugin } from "./kit/plugin.ts";
import { requireIpam } from "./kit/require_ipam.ts";
import { attach, checkAttached } from "./kit/single_interface.ts";
import { object } from "./spec/schema.ts";

const KIND = "dummy";

export default plugin({
  name: KIND,
  about: "Gives it addresses on an interface that leads nowhere",
  config: object({}),

  add(call) {
    const { netns, ifname, undo } = call;
    requireIpam(call);
    const device = addLink(netns, { name: ifname, info: dummy({}) });
    undo.defer(() => void removeIfPresent(netns, ifname));
    // Nobody can answer there, who might have the address too.
    return attach(call, device, true);
  },

  del({ netns, ifname, ipam }) {
    cleanUp(
      () => void removeOfKind(netns, ifname, KIND),
      () => ipam?.del(),
    );
  },

  check(call) {
    requireIpam(call);
    const device = checkAttached(call, KIND);
    expectEqual(`kind of "${call.ifname}"`, device.info?.kind, KIND);
  },

  status: (call) => requireIpam(call).status(),
});
