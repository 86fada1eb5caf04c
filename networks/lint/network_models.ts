import { type Cidr, familyOf } from "../../ffi/address.ts";
import type { NetworkModel } from "../../plugins/lib/model/network_model.ts";
import { findModel } from "../../plugins/registry.ts";
import { attempt, type LintPlugin } from "./lint_file.ts";
import { configuredRanges } from "./ranges.ts";

/** Kept because several rules ask. */
const models = new WeakMap<LintPlugin, NetworkModel>();

/** `undefined` for plugins that connect no containers to the host, and unusable keys. */
export function networkModelOf(plugin: LintPlugin): NetworkModel | undefined {
  const model = models.get(plugin) ?? attempt(() => findModel(plugin.type)?.network?.(plugin.raw));
  if (model) models.set(plugin, model);
  return model;
}

/** The IPv4 subnets of a plugin that gives its bridge an address. Bridges that replace an address of others want that. */
export function gatewaySubnetsOf(plugin: LintPlugin): Cidr[] {
  const { bridge, isRouted } = networkModelOf(plugin) ?? {};
  if (!bridge || !isRouted || bridge.replacesAddresses) return [];
  return configuredRanges(plugin).map(({ range }) => range.subnet).filter((subnet) => familyOf(subnet) === 4);
}
