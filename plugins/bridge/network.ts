import type { NetworkModel } from "../lib/model/network_model.ts";
import { type BridgeConfig, gatewayDeviceName, isGateway, vlanGatewayName } from "./config.ts";
import { GATEWAY_PROTOCOL } from "./gateway.ts";

export function bridgeNetwork(config: BridgeConfig): NetworkModel {
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
  };
}
