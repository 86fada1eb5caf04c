import * as link from "../../../ffi/route/link.ts";
import type { NetworkModel } from "../model/network_model.ts";
import type { PluginCall } from "../protocol/plugin.ts";
import { configuredNetworks, describeOverlap, findOverlap, readHostNetworks } from "./host_networks.ts";
import {
  configuredSubnets,
  describeForeignRoute,
  describeMissingDefaultRoute,
  describeUnforwarded,
  describeUnforwardedLink,
  distinctFamilies,
  listForeignRoutes,
  ownLinkTest,
} from "./reachability.ts";

/** What stops packets of the network's containers although ADD succeeds: STATUS and CHECK warn of it. */
export function diagnoseNetwork(
  { host, pluginConfig: { name, raw } }: PluginCall<unknown>,
  { bridge, isRouted, masquerades, allowsRouteOverlap }: NetworkModel,
): string[] {
  const subnets = configuredSubnets(raw);
  const families = distinctFamilies(subnets);
  const isOwn = ownLinkTest(bridge, name);
  const ownLinks = bridge
    ? [...new Set([bridge.name, bridge.gatewayDevice])].flatMap((each) => link.find(host.route, each) ?? [])
    : link.list(host.route).filter(isOwn);
  const bridgeLink = ownLinks.find((each) => each.name === bridge?.name);
  const gatewayLink = ownLinks.find((each) => each.name === bridge?.gatewayDevice);
  const wanted = isRouted ? configuredNetworks(raw) : [];
  const networks = readHostNetworks(host, wanted, gatewayLink);
  const overlap = findOverlap(networks, gatewayLink, wanted);
  return [
    ...bridgeLink && !link.isUp(bridgeLink)
      ? [`Bridge "${bridgeLink.name}" is down, so no packets flow: the next ADD sets it up`]
      : [],
    // Before the first ADD, forwarding may still be off.
    ...isRouted && ownLinks.length > 0 ? describeUnforwarded(host, families, "the next ADD turns it on") : [],
    ...!isRouted && masquerades ? describeUnforwarded(host, families) : [],
    ...isRouted ? ownLinks.flatMap((each) => describeUnforwardedLink(host, each)) : [],
    // A VRF has its own table.
    ...masquerades && bridgeLink?.master === undefined ? describeMissingDefaultRoute(host, families) : [],
    ...overlap && !allowsRouteOverlap ? [describeOverlap(overlap, subnets)] : [],
    ...isRouted ? listForeignRoutes(networks, subnets, isOwn, overlap).map(describeForeignRoute) : [],
  ];
}
