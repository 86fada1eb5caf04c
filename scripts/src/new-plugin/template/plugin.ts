/** The `new-plugin` plugin: puts the container's interface into a group of links, as `ip link set group` does. @module */
import * as link from "../../../../ffi/route/link.ts";
import { expectEqual } from "../../../../plugins/lib/protocol/check_failed.ts";
import { ownedByOtherContainer } from "../../../../plugins/lib/links/ownership.ts";
import { plugin, requirePrevResult } from "../../../../plugins/lib/protocol/plugin.ts";
import { newPluginConfig } from "./config.ts";

/** The group of a link that nobody put into another. */
const DEFAULT_GROUP = 0;

export default plugin({
  name: "new-plugin",
  about: "Puts the interface into a group of links",
  config: newPluginConfig,

  add(call) {
    const { config, netns, ifname, undo } = call;
    const result = requirePrevResult(call, "new-plugin");
    const { index, group = DEFAULT_GROUP } = link.get(netns.route, ifname);
    undo.defer(() => link.set(netns.route, index, { group }));
    link.set(netns.route, index, { group: config.group });
    return result;
  },

  del(call) {
    const { netns, ifname } = call;
    // Both may be gone already: DEL succeeds all the same.
    const device = netns && link.find(netns.route, ifname);
    if (!device || ownedByOtherContainer(call, netns, device)) return;
    link.set(netns.route, device.index, { group: DEFAULT_GROUP });
  },

  check(call) {
    const { config, netns, ifname } = call;
    requirePrevResult(call, "new-plugin");
    expectEqual(`group of "${ifname}"`, link.get(netns.route, ifname).group, config.group);
  },

  /** All there is is in the container's namespace, and goes with it. */
  gc() {},

  status() {},
});
