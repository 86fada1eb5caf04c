import { type Cidr, networkOf } from "../../ffi/address.ts";
import * as address from "../../ffi/route/address.ts";
import * as link from "../../ffi/route/link.ts";
import {
  configuredNetworks,
  describeOverlap,
  findOverlap,
  overlapError,
  readHostNetworks,
} from "../lib/links/host_networks.ts";
import {
  configuredSubnets,
  describeForeignRoutes,
  describeMissingDefaultRoute,
  describeUnforwarded,
  describeUnforwardedLink,
  distinctFamilies,
} from "../lib/links/reachability.ts";
import type { PluginCall } from "../lib/protocol/plugin.ts";
import { Code } from "../../spec/error.ts";
import {
  type BridgeConfig,
  gatewayDeviceName,
  isGateway as isHostGateway,
  needsVlanGateway,
  vlanGatewayName,
} from "./config.ts";

export function diagnoseBridge({ config, host, pluginConfig }: PluginCall<BridgeConfig>): string[] {
  const subnets = configuredSubnets(pluginConfig.raw);
  const families = distinctFamilies(subnets);
  const bridge = link.find(host.route, config.bridge);
  const isGateway = isHostGateway(config);
  const ownNames = [config.bridge, vlanGatewayName(config)];
  const wanted = isGateway ? configuredNetworks(pluginConfig.raw) : [];
  const device = needsVlanGateway(config) ? link.find(host.route, vlanGatewayName(config)) : bridge;
  const networks = readHostNetworks(host, wanted, device);
  const overlap = findOverlap(networks, device, wanted);
  return [
    ...bridge && !link.isUp(bridge)
      ? [`Bridge "${config.bridge}" is down, so no packets flow: the next ADD sets it up`]
      : [],
    ...isGateway && bridge ? describeUnforwarded(host, families, "the next ADD turns it on") : [],
    ...!isGateway && config.ipMasq ? describeUnforwarded(host, families) : [],
    ...isGateway ? ownNames.flatMap((name) => describeUnforwardedLink(host, { name })) : [],
    // A VRF has its own table.
    ...config.ipMasq && bridge?.master === undefined ? describeMissingDefaultRoute(host, families) : [],
    ...overlap && !config.allowRouteOverlap ? [describeOverlap(overlap, subnets)] : [],
    ...isGateway ? describeForeignRoutes(networks, subnets, ({ name = "" }) => ownNames.includes(name), overlap) : [],
  ];
}

export function refuseBridgeOverlap({ config, host, pluginConfig }: PluginCall<BridgeConfig>): void {
  if (config.allowRouteOverlap) return;
  const device = link.find(host.route, gatewayDeviceName(config));
  const present = device ? address.list(host.route, { index: device.index }) : [];
  const has = (subnet: Cidr) => present.some((entry) => networkOf(entry.address) === subnet);
  const wanted = configuredNetworks(pluginConfig.raw).filter(({ subnet }) => !has(subnet));
  const overlap = findOverlap(readHostNetworks(host, wanted, device), device, wanted);
  if (overlap) throw overlapError(Code.NotAvailable, "attach containers", overlap, wanted);
}
