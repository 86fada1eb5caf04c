import { type Cidr, networkOf } from "../../ffi/address.ts";
import * as address from "../../ffi/route/address.ts";
import * as link from "../../ffi/route/link.ts";
import { configuredNetworks, findOverlap, overlapError, readHostNetworks } from "../lib/links/host_networks.ts";
import type { PluginCall } from "../lib/protocol/plugin.ts";
import { Code } from "../../spec/error.ts";
import { type BridgeConfig, needsVlanGateway, vlanGatewayName } from "./config.ts";

/** @throws {CniError} if the first ADD would be refused */
export function refuseBridgeOverlap(
  { config, host, pluginConfig }: PluginCall<BridgeConfig>,
  bridge: link.Link | undefined,
): void {
  if (config.allowRouteOverlap) return;
  const device = needsVlanGateway(config) ? link.find(host.route, vlanGatewayName(config)) : bridge;
  const present = device ? address.list(host.route, { index: device.index }) : [];
  const has = (subnet: Cidr) => present.some((entry) => networkOf(entry.address) === subnet);
  const wanted = configuredNetworks(pluginConfig.raw).filter(({ subnet }) => !has(subnet));
  const overlap = findOverlap(readHostNetworks(host, wanted, device), device, wanted);
  if (overlap) throw overlapError(Code.NotAvailable, "attach containers", overlap, wanted);
}
