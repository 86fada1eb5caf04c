/** The `new-plugin` plugin: gives the container one more interface, with an address that the host masquerades. @module */
import * as address from "../../../../ffi/route/address.ts";
import { executeAll } from "../../../../ffi/netlink/socket.ts";
import * as link from "../../../../ffi/route/link.ts";
import { bridge } from "../../../../ffi/route/link_kinds.ts";
import { lives } from "../../../../plugins/lib/links/address_claim.ts";
import { addContainerLink, removeLinkIfPresent } from "../../../../plugins/lib/links/container_link.ts";
import { requireSysctl } from "../../../../plugins/lib/links/sysctls.ts";
import { checkWanted } from "../../../../plugins/lib/links/wanted_differences.ts";
import type { PluginModel } from "../../../../plugins/lib/model/plugin_model.ts";
import { formatAlias, parseAlias, sameOwner } from "../../../../plugins/lib/model/owner.ts";
import { plugin, requirePrevResult, runAllSteps } from "../../../../plugins/lib/protocol/plugin.ts";
import { inetTable } from "../../../../plugins/lib/ruleset/inet_table.ts";
import {
  addMasquerade,
  checkMasquerade,
  gcMasquerade,
  removeMasquerade,
  restoreMasquerade,
} from "../../../../plugins/lib/veth/masquerade.ts";
import { removeRulesIfSupported } from "../../../../plugins/lib/ruleset/nf_tables_support.ts";
import { requireTable } from "../../../../plugins/lib/ruleset/table.ts";
import { newPluginConfig } from "./config.ts";
import { newPluginWanted } from "./model.ts";

export default plugin({
  name: "new-plugin",
  about: "Gives the container one more interface, for a service",
  config: newPluginConfig,
  model: (): PluginModel => require("./model.ts").default,
  needsPrevResult: () => true,

  add(call) {
    const { config, host, netns, owner, sandbox, undo } = call;
    const result = requirePrevResult(call, "new-plugin");
    // A failed ADD removes it, and all that is on it.
    const { index } = addContainerLink(netns, { name: config.interface, info: bridge({}) }, undo);
    link.set(netns.route, index, { alias: formatAlias(owner) });
    const { sysctls = [] } = newPluginWanted(config);
    netns.run(() => sysctls.forEach(({ name, value }) => requireSysctl(name, value)));
    executeAll(netns.route, [address.addRequest(index, config.address, { noDad: true })]);
    link.setUp(netns.route, index);
    undo.defer(() => removeMasquerade(host.nft, owner));
    addMasquerade(host.nft, owner, [config.address], lives(host));
    return { ...result, interfaces: [...result.interfaces ?? [], { name: config.interface, sandbox }] };
  },

  del(call) {
    const { config, host, netns, owner } = call;
    runAllSteps(
      () => {
        // Both may be gone already: DEL succeeds all the same.
        const device = netns && link.find(netns.route, config.interface);
        if (device && sameOwner(parseAlias(device.alias), owner)) removeLinkIfPresent(netns, config.interface);
      },
      () => removeRulesIfSupported(host, true, (nl) => removeMasquerade(nl, owner)),
    );
  },

  check(call) {
    const { config, host, owner } = call;
    requirePrevResult(call, "new-plugin");
    checkWanted(call, newPluginWanted(config));
    checkMasquerade(host.nft, owner, [config.address], lives(host));
  },

  restore: ({ config, host, owner }) => restoreMasquerade(host.nft, owner, [config.address], lives(host)),

  gc({ host, pluginConfig, validAttachments, log }) {
    removeRulesIfSupported(host, true, (nl) => gcMasquerade(nl, pluginConfig.name, validAttachments, log));
  },

  status: ({ host }) => requireTable(host.nft, inetTable),
});
