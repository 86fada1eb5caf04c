import type { PluginModel } from "../../../../plugins/lib/model/plugin_model.ts";
import type { Wanted } from "../../../../plugins/lib/model/wanted.ts";
import { removeElementsOf } from "../../../../plugins/lib/ruleset/elements.ts";
import { type NewPluginConfig, newPluginConfig } from "./config.ts";
import { newPluginPurpose, newPluginTable } from "./elements.ts";

/** What an attachment has besides its result: `cni doctor` and CHECK compare it. */
export function newPluginWanted({ interface: name, address }: NewPluginConfig): Wanted {
  return {
    links: [{ place: "container", name }],
    addresses: [{ place: "container", link: name, address }],
    sysctls: [{ place: "container", name: `net/ipv4/conf/${name}/arp_ignore`, value: "1" }],
  };
}

/** What `new-plugin` tells tools of its networks. */
const model: PluginModel = {
  wanted: ({ raw }) => newPluginWanted(newPluginConfig.parse(raw)),
  removeRules: ({ nft }, owner) => void removeElementsOf(nft, newPluginTable, newPluginPurpose, owner),
};
export default model;
