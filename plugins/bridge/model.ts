import type { PluginModel } from "../lib/model/plugin_model.ts";
import { removeMasquerade } from "../lib/veth/masquerade.ts";
import { hasSpoofChecks, removeSpoofCheck } from "../lib/veth/spoof_check.ts";
import { bridgeConfig, gatewayDeviceName, isGateway, vlanGatewayName } from "./config.ts";
import { GATEWAY_PROTOCOL, gatewayAddresses } from "./gateway.ts";
import { planBridgeRemoval } from "./removal.ts";

const model: PluginModel = {
  network(raw) {
    const config = bridgeConfig.parse(raw);
    return {
      bridge: {
        name: config.bridge,
        gatewayDevice: gatewayDeviceName(config),
        vlan: config.vlan,
        mtu: config.mtu,
        links: [config.bridge, vlanGatewayName(config)],
        leavesLinksDown: config.disableContainerInterface,
        isolatesPorts: config.portIsolation,
        replacesAddresses: config.forceAddress,
        isFormerGateway: ({ protocol }) => protocol === GATEWAY_PROTOCOL,
      },
      isRouted: isGateway(config),
      masquerades: config.ipMasq,
      addsDefaultRoutes: config.isDefaultGateway,
      allowsRouteOverlap: config.allowRouteOverlap,
      gateways: (ips) => isGateway(config) ? gatewayAddresses(ips) : [],
    };
  },
  removeRules({ nft }, owner) {
    removeMasquerade(nft, owner);
    if (hasSpoofChecks(nft)) removeSpoofCheck(nft, owner);
  },
  planRemoval: planBridgeRemoval,
};
export default model;
