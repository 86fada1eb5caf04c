import type { PluginModel } from "../lib/model/plugin_model.ts";
import { checkElements } from "../lib/ruleset/elements.ts";
import { parsePortmapConfig } from "./config.ts";
import { portTable } from "./port_table.ts";
import { publishedElements } from "./elements.ts";
import { listRobbedListeners } from "./listeners.ts";
import { targetAddresses } from "../lib/links/container_ips.ts";

const model: PluginModel = {
  publishedPorts({ raw }, ifname, result) {
    const config = parsePortmapConfig(raw);
    const { mappings, snat, conditions } = config;
    const targets = targetAddresses(result, ifname);
    return {
      mappings,
      targets,
      masqueradesCallers: snat,
      hasConditions: (family) => conditions[family] !== undefined,
      checkRules(host, owner) {
        checkElements(host.nft, portTable, owner, publishedElements(config, targets));
      },
      listRobbedListeners: (host, containerId) => listRobbedListeners({ containerId, host }, mappings, targets),
    };
  },
};
export default model;
