import { containerIps } from "../lib/links/container_ips.ts";
import { reportedHostInterface } from "../lib/veth/veth_pair.ts";
import type { PluginModel } from "../lib/model/plugin_model.ts";
import { removeMasquerade } from "../lib/veth/masquerade.ts";
import { ptpConfig, ptpNetwork } from "./config.ts";
import { ptpWanted } from "./wanted.ts";

const model: PluginModel = {
  network: (raw) => ptpNetwork(ptpConfig.parse(raw)),
  wanted(_config, { result, ifname }) {
    const hostVeth = reportedHostInterface(result, ifname);
    return hostVeth ? ptpWanted(hostVeth.name, containerIps(result, ifname)) : {};
  },
  removeRules: ({ nft }, owner) => removeMasquerade(nft, owner),
};
export default model;
