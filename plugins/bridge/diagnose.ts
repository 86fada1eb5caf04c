import * as link from "../../ffi/route/link.ts";
import {
  configuredSubnets,
  describeForeignRoutes,
  describeMissingDefaultRoute,
  describeUnforwarded,
  describeUnforwardedLink,
  distinctFamilies,
} from "../lib/links/reachability.ts";
import type { PluginCall } from "../lib/protocol/plugin.ts";
import { type BridgeConfig, isGateway as isHostGateway, vlanGatewayName } from "./config.ts";

export function diagnoseBridge({ config, host, pluginConfig }: PluginCall<BridgeConfig>): string[] {
  const subnets = configuredSubnets(pluginConfig.raw);
  const families = distinctFamilies(subnets);
  const bridge = link.find(host.route, config.bridge);
  const isGateway = isHostGateway(config);
  const ownNames = [config.bridge, vlanGatewayName(config)];
  return [
    ...bridge && !link.isUp(bridge)
      ? [`Bridge "${config.bridge}" is down, so no packets flow: the next ADD sets it up`]
      : [],
    ...isGateway && bridge ? describeUnforwarded(host, families, "the next ADD turns it on") : [],
    ...!isGateway && config.ipMasq ? describeUnforwarded(host, families) : [],
    ...isGateway ? ownNames.flatMap((name) => describeUnforwardedLink(host, { name })) : [],
    // A VRF has its own table.
    ...config.ipMasq && bridge?.master === undefined ? describeMissingDefaultRoute(host, families) : [],
    ...isGateway ? describeForeignRoutes(host, subnets, ({ name = "" }) => ownNames.includes(name)) : [],
  ];
}
