import { type Cidr, familyOf } from "../../ffi/address.ts";
import { type BridgeConfig, bridgeConfig, isGateway } from "../../plugins/bridge/config.ts";
import { attempt, type LintPlugin } from "./lint_file.ts";
import { configuredRanges } from "./ranges.ts";

/** Several rules ask. */
const configs = new WeakMap<LintPlugin, BridgeConfig>();

/** `undefined` for other plugins, and unusable keys. */
export function bridgeConfigOf(plugin: LintPlugin): BridgeConfig | undefined {
  if (plugin.type !== "bridge") return undefined;
  const config = configs.get(plugin) ?? attempt(() => bridgeConfig.parse(plugin.raw));
  if (config) configs.set(plugin, config);
  return config;
}

/** The IPv4 subnets of a plugin that gives its bridge an address. Bridges that replace an address of others want that. */
export function gatewaySubnetsOf(plugin: LintPlugin): Cidr[] {
  const config = bridgeConfigOf(plugin);
  if (!config || !isGateway(config) || config.forceAddress) return [];
  return configuredRanges(plugin).map(({ range }) => range.subnet).filter((subnet) => familyOf(subnet) === 4);
}
