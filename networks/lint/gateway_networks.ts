/** Plugins that give the host the gateway of their subnets. */
import { type Cidr, familyOf } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import * as link from "../../ffi/route/link.ts";
import {
  findOverlap,
  type HostNetwork,
  type HostNetworks,
  readHostNetworks,
} from "../../plugins/lib/links/host_networks.ts";
import { ownLinkTest } from "../../plugins/lib/links/reachability.ts";
import type { LintFile, LintPlugin } from "./lint_file.ts";
import type { ConfiguredRange } from "./ranges.ts";

/** `undefined` if the subnet may be that of a network around the host. */
export function ownLinkFilter(plugin: LintPlugin, { name }: LintFile): ((link: link.Link) => boolean) | undefined {
  const { bridge, isRouted } = plugin.network ?? {};
  return isRouted ? ownLinkTest(bridge, name ?? "") : undefined;
}

interface ExaminedRange extends ConfiguredRange {
  readonly networks: HostNetworks;
  readonly overlap: HostNetwork | undefined;
}

export function examineRanges(host: Netns, plugin: LintPlugin): ExaminedRange[] {
  const bridge = plugin.network?.bridge;
  const device = bridge && link.find(host.route, bridge.gatewayDevice);
  const networks = readHostNetworks(host, plugin.ranges.map(({ range }) => range), device);
  return plugin.ranges.map((each) => ({ ...each, networks, overlap: findOverlap(networks, device, [each.range]) }));
}

export function allowsRouteOverlap(plugin: LintPlugin): boolean {
  return plugin.network?.allowsRouteOverlap === true;
}

/** The IPv4 subnets of a plugin that gives its bridge an address. Bridges that replace an address of others want that. */
export function gatewaySubnetsOf(plugin: LintPlugin): Cidr[] {
  const { bridge, isRouted } = plugin.network ?? {};
  if (!bridge || !isRouted || bridge.replacesAddresses) return [];
  return plugin.ranges.map(({ range }) => range.subnet).filter((subnet) => familyOf(subnet) === 4);
}
