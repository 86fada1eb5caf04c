/** The `new-plugin` plugin: gives the container one more interface, for a service. Packets to it do not leave the host. @module */
import * as address from "../../../../ffi/route/address.ts";
import { executeAll } from "../../../../ffi/netlink/socket.ts";
import * as link from "../../../../ffi/route/link.ts";
import { bridge } from "../../../../ffi/route/link_kinds.ts";
import { addContainerLink, removeLinkIfPresent } from "../../../../plugins/lib/links/container_link.ts";
import { requireSysctl } from "../../../../plugins/lib/links/sysctls.ts";
import { checkWanted } from "../../../../plugins/lib/links/wanted_differences.ts";
import type { PluginModel } from "../../../../plugins/lib/model/plugin_model.ts";
import {
  formatAlias,
  logRemoval,
  ownerPrefix,
  parseAlias,
  sameOwner,
  staleOwnerFilter,
} from "../../../../plugins/lib/model/owner.ts";
import { plugin, requirePrevResult, runAllSteps } from "../../../../plugins/lib/protocol/plugin.ts";
import {
  checkElements,
  ensureElements,
  removeElements,
  removeElementsOf,
  restoreElements,
} from "../../../../plugins/lib/ruleset/elements.ts";
import { removeRulesIfSupported } from "../../../../plugins/lib/ruleset/nf_tables_support.ts";
import { requireTable } from "../../../../plugins/lib/ruleset/table.ts";
import { newPluginConfig } from "./config.ts";
import { newPluginElements, newPluginPurpose, newPluginTable } from "./elements.ts";
import { newPluginWanted } from "./model.ts";

export default plugin({
  name: "new-plugin",
  about: "Gives the container one more interface, for a service",
  config: newPluginConfig,
  model: (): PluginModel => require("./model.ts").default,
  needsPrevResult: () => true,

  add(call) {
    const { config, host, ifname, log, netns, owner, sandbox, undo } = call;
    const result = requirePrevResult(call, "new-plugin");
    // A failed ADD removes it, and all that is on it.
    const { index } = addContainerLink(netns, { name: config.interface, info: bridge({}) }, undo);
    link.set(netns.route, index, { alias: formatAlias(owner) });
    const { sysctls = [] } = newPluginWanted(config);
    netns.run(() => sysctls.forEach(({ name, value }) => requireSysctl(name, value)));
    executeAll(netns.route, [address.addRequest(index, config.address, { noDad: true })]);
    link.setUp(netns.route, index);
    undo.defer(() => removeElementsOf(host.nft, newPluginTable, newPluginPurpose, owner));
    ensureElements(host.nft, newPluginTable, owner, newPluginElements(config.address, result, ifname), { log });
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
      () => removeRulesIfSupported(host, true, (nl) => removeElementsOf(nl, newPluginTable, newPluginPurpose, owner)),
    );
  },

  check(call) {
    const { config, host, ifname, owner } = call;
    const result = requirePrevResult(call, "new-plugin");
    checkWanted(call, newPluginWanted(config));
    checkElements(host.nft, newPluginTable, owner, newPluginElements(config.address, result, ifname));
  },

  restore(call) {
    const { config, host, ifname, owner } = call;
    const result = requirePrevResult(call, "new-plugin");
    return restoreElements(host.nft, newPluginTable, owner, newPluginElements(config.address, result, ifname));
  },

  gc({ host, pluginConfig: { name }, validAttachments, log }) {
    const isStale = staleOwnerFilter(name, validAttachments, logRemoval(log, "the rule"));
    removeRulesIfSupported(
      host,
      true,
      (nl) => removeElements(nl, newPluginTable, newPluginPurpose, ownerPrefix(name), isStale),
    );
  },

  status: ({ host }) => requireTable(host.nft, newPluginTable),
});
