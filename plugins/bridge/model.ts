import { containerIps } from "../lib/links/container_ips.ts";
import type { PluginModel } from "../lib/model/plugin_model.ts";
import { removeMasquerade } from "../lib/veth/masquerade.ts";
import { hasSpoofChecks, removeSpoofCheck } from "../lib/veth/spoof_check.ts";
import { bridgeConfig } from "./config.ts";
import { bridgeNetwork } from "./network.ts";
import { planBridgeRemoval } from "./removal.ts";
import { bridgeWanted } from "./wanted.ts";

const model: PluginModel = {
  network: (raw) => bridgeNetwork(bridgeConfig.parse(raw)),
  wanted: ({ raw }, { result, ifname }) => bridgeWanted(bridgeConfig.parse(raw), containerIps(result, ifname)),
  removeRules({ nft }, owner) {
    removeMasquerade(nft, owner);
    if (hasSpoofChecks(nft)) removeSpoofCheck(nft, owner);
  },
  planRemoval: planBridgeRemoval,
};
export default model;
