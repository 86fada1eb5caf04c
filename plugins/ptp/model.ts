import type { PluginModel } from "../lib/model/plugin_model.ts";
import type { IpConfig } from "../../spec/result.ts";
import { removeMasquerade } from "../lib/veth/masquerade.ts";
import { ptpConfig } from "./config.ts";
import { gatewayPrefixes, type IpWithGateway } from "./routes.ts";

const hasGateway = (ip: IpConfig): ip is IpWithGateway => ip.gateway !== undefined;

const model: PluginModel = {
  network(raw) {
    const { ipMasq, allowRouteOverlap } = ptpConfig.parse(raw);
    return {
      isRouted: true,
      masquerades: ipMasq,
      addsDefaultRoutes: false,
      allowsRouteOverlap: allowRouteOverlap,
      gateways: (ips) => gatewayPrefixes(ips.filter(hasGateway)),
    };
  },
  removeRules: ({ nft }, owner) => removeMasquerade(nft, owner),
};
export default model;
