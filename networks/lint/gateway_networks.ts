/** Plugins that give the host the gateway of their subnets. */
import type { Netns } from "../../ffi/netns/netns.ts";
import * as link from "../../ffi/route/link.ts";
import {
  findOverlap,
  type HostNetwork,
  type HostNetworks,
  readHostNetworks,
} from "../../plugins/lib/links/host_networks.ts";
import { parseAlias } from "../../plugins/lib/model/owner.ts";
import { networkModelOf } from "./network_models.ts";
import type { LintFile, LintPlugin } from "./lint_file.ts";
import { type ConfiguredRange, configuredRanges } from "./ranges.ts";

/** `undefined` if the subnet may be that of a network around the host. */
export function ownLinkFilter(plugin: LintPlugin, { name }: LintFile): ((link: link.Link) => boolean) | undefined {
  const { bridge, isRouted } = networkModelOf(plugin) ?? {};
  if (!isRouted) return undefined;
  if (!bridge) return ({ alias }) => parseAlias(alias)?.network === name;
  return (link) => bridge.links.includes(link.name ?? "");
}

interface ExaminedRange extends ConfiguredRange {
  readonly networks: HostNetworks;
  readonly overlap: HostNetwork | undefined;
}

export function examineRanges(host: Netns, plugin: LintPlugin): ExaminedRange[] {
  const bridge = networkModelOf(plugin)?.bridge;
  const device = bridge && link.find(host.route, bridge.gatewayDevice);
  const ranges = configuredRanges(plugin);
  const networks = readHostNetworks(host, ranges.map(({ range }) => range), device);
  return ranges.map((each) => ({ ...each, networks, overlap: findOverlap(networks, device, [each.range]) }));
}

export function allowsRouteOverlap(plugin: LintPlugin): boolean {
  return networkModelOf(plugin)?.allowsRouteOverlap === true;
}
