/** A published port is a map element (plugins/lib/ruleset/inet_table.ts): packets and ADDs cost the same for any number of ports. */
import { type Cidr, ipOf } from "../../ffi/address.ts";
import type { PluginModel } from "../lib/model/plugin_model.ts";
import { checkElements } from "../lib/ruleset/elements.ts";
import { isOneOfOwners, logRemoval, staleOwnerFilter } from "../lib/model/owner.ts";
import { plugin, requirePrevResult, runAllSteps } from "../lib/protocol/plugin.ts";
import { requireTable } from "../lib/ruleset/table.ts";
import { parsePortmapConfig, portmapConfigSchema } from "./config.ts";
import { describeHostPort, type PortMapping } from "../../spec/port_mapping.ts";
import { mappingsForFamily, publishedElements } from "./elements.ts";
import { portTable } from "./port_table.ts";
import { gcReferencePorts, ownersWithReferencePorts, removeReferencePorts } from "./reference_port_rules.ts";

import { jsonObject } from "../../spec/schema.ts";
import {
  flushEarlierFlows,
  publishPorts,
  removePublishedPorts,
  removePublishedPortsOfNetwork,
} from "./publish_ports.ts";
import { findLoopbackSource } from "./loopback.ts";
import { targetAddresses } from "../lib/links/container_ips.ts";

export default plugin({
  name: "portmap",
  about: "Publishes ports of the container on the host",
  hasRulesOnly: true,
  // Commands parse the keys themselves: DEL must not fail where ADD fails.
  config: { ...jsonObject, inner: portmapConfigSchema },
  model: (): PluginModel => require("./model.ts").default,

  needsPrevResult: () => true,

  validate: ({ config }) => void parsePortmapConfig(config),

  add(call) {
    const { host, owner, undo, log } = call;
    const config = parsePortmapConfig(call.config);
    const result = requirePrevResult(call, "portmap");
    if (config.mappings.length === 0) return result;
    if (config.backend === "iptables") {
      log('backend "iptables": the ports are published by nf_tables rules of this program anyway');
    }
    const addresses = targetAddresses(result, call.ifname);
    logUnreachable(config.mappings, addresses, log);
    publishPorts(call, config, addresses, "add");
    undo.defer(() => removePublishedPorts(host, owner));
    flushEarlierFlows(call, config, addresses);
    return result;
  },

  del(call) {
    const { host, owner, prevResult, ifname, log } = call;
    const addresses = prevResult ? targetAddresses(prevResult, ifname) : [];
    runAllSteps(
      () => removePublishedPorts(host, owner, log),
      () => removeReferencePorts(host.nft, owner, addresses.map(ipOf)),
    );
  },

  delBatch(calls) {
    const { host, pluginConfig, log } = calls[0];
    const owners = calls.map(({ owner }) => owner);
    removePublishedPortsOfNetwork(host, pluginConfig.name, isOneOfOwners(owners), log);
    const withReferenceRules = ownersWithReferencePorts(host.nft, owners);
    return calls.filter(({ owner }) => withReferenceRules.has(owner));
  },

  check(call) {
    const config = parsePortmapConfig(call.config);
    const addresses = targetAddresses(requirePrevResult(call, "portmap"), call.ifname);
    const source = findLoopbackSource(call.host, config, addresses);
    checkElements(call.host.nft, portTable, call.owner, publishedElements(config, addresses, source));
  },

  restore(call) {
    const config = parsePortmapConfig(call.config);
    const addresses = targetAddresses(requirePrevResult(call, "portmap"), call.ifname);
    const restored = publishPorts(call, config, addresses, "restore");
    if (restored.length > 0) flushEarlierFlows(call, config, addresses);
    return restored;
  },

  gc({ host, pluginConfig, validAttachments, log }) {
    const isStale = staleOwnerFilter(pluginConfig.name, validAttachments, logRemoval(log, "published ports"));
    removePublishedPortsOfNetwork(host, pluginConfig.name, isStale, log);
    gcReferencePorts(host.nft, pluginConfig.name, validAttachments);
  },

  status(call) {
    parsePortmapConfig(call.config);
    requireTable(call.host.nft, portTable);
  },
});

/** A runtime may offer all of its host addresses, so mappings of other families are skipped. */
function logUnreachable(
  mappings: readonly PortMapping[],
  addresses: readonly Cidr[],
  log: (text: string) => void,
): void {
  for (const mapping of mappings) {
    const isReachable = addresses.some((address) => mappingsForFamily([mapping], address).length > 0);
    if (!isReachable) log(`Cannot publish ${describeHostPort(mapping)}: the container has no address of that family`);
  }
}
