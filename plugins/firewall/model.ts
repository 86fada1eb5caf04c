import type { PluginModel } from "../lib/model/plugin_model.ts";
import { FORWARD_CHAIN } from "./cni_forward_chain.ts";
import { firewallConfigSchema } from "./config.ts";
import { isServedChain } from "./forward_accept.ts";

const model: PluginModel = {
  forwardAccept({ raw }) {
    const { iptablesAdminChainName } = firewallConfigSchema.parse(raw);
    return {
      chain: FORWARD_CHAIN,
      serves: (nl, base) => isServedChain(nl, base, iptablesAdminChainName),
    };
  },
  foreignChains: [FORWARD_CHAIN],
};
export default model;
