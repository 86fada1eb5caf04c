import { dummy } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import { expectEqual } from "../lib/protocol/check_failed.ts";
import { addContainerLink } from "../lib/links/container_link.ts";
import { formatAlias } from "../lib/model/owner.ts";
import { plugin } from "../lib/protocol/plugin.ts";
import { requireIpam, requireIpamType } from "../lib/protocol/require_ipam.ts";
import {
  attachInterface,
  checkAttachedInterface,
  detachInterface,
  detachInterfaces,
} from "../lib/links/single_interface.ts";
import { object } from "../../spec/schema.ts";

const KIND = "dummy";

export default plugin({
  name: KIND,
  about: "Gives the container an interface that drops all packets",
  config: object({}),
  validate: ({ pluginConfig }) => requireIpamType(pluginConfig),

  add(call) {
    const { netns, ifname, owner, undo } = call;
    requireIpam(call);
    const device = addContainerLink(netns, { name: ifname, info: dummy({}) }, undo);
    link.set(netns.route, device.index, { alias: formatAlias(owner) });
    // No duplicate address detection: nobody can answer there.
    return attachInterface(call, device, true);
  },

  del: (call) => detachInterface(call, KIND),

  delBatch: (calls, ipam) => detachInterfaces(calls, ipam, KIND),

  check(call) {
    requireIpam(call);
    const device = checkAttachedInterface(call, KIND);
    expectEqual(`kind of "${call.ifname}"`, device.info?.kind, KIND);
  },

  status: (call) => requireIpam(call).status(),
});
