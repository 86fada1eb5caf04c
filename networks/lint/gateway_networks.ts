/** Plugins that give the host the gateway of their subnets. */
import { findValue } from "../../spec/schema.ts";
import type { Netns } from "../../ffi/netns.ts";
import * as link from "../../ffi/route/link.ts";
import { gatewayDeviceName, isGateway, vlanGatewayName } from "../../plugins/bridge/config.ts";
import {
  findOverlap,
  type HostNetwork,
  type HostNetworks,
  readHostNetworks,
} from "../../plugins/lib/links/host_networks.ts";
import { parseAlias } from "../../plugins/lib/protocol/owner.ts";
import { bridgeConfigOf } from "./bridges.ts";
import type { LintFile, LintPlugin } from "./lint_file.ts";
import { type ConfiguredRange, configuredRanges } from "./ranges.ts";

/** `undefined` if the subnet may be that of a network around the host. */
export function ownLinkFilter(plugin: LintPlugin, { name }: LintFile): ((link: link.Link) => boolean) | undefined {
  if (plugin.type === "ptp") return ({ alias }) => parseAlias(alias)?.network === name;
  const config = bridgeConfigOf(plugin);
  if (!config || !isGateway(config)) return undefined;
  const names = [config.bridge, vlanGatewayName(config)];
  return (link) => names.includes(link.name ?? "");
}

/** A range, with the host's own network that it overlaps. */
interface ExaminedRange extends ConfiguredRange {
  readonly networks: HostNetworks;
  readonly overlap: HostNetwork | undefined;
}

export function examineRanges(host: Netns, plugin: LintPlugin): ExaminedRange[] {
  const config = bridgeConfigOf(plugin);
  const device = config && link.find(host.route, gatewayDeviceName(config));
  const ranges = configuredRanges(plugin);
  const networks = readHostNetworks(host, ranges.map(({ range }) => range), device);
  return ranges.map((each) => ({ ...each, networks, overlap: findOverlap(networks, device, [each.range]) }));
}

export const allowsRouteOverlap = ({ raw }: LintPlugin): boolean => findValue(raw, "allowRouteOverlap") === true;
