import { type BridgeConfig, bridgeConfig } from "../../plugins/bridge/config.ts";
import { attempt, type LintPlugin } from "./lint_file.ts";

/** Every pair of files asks. */
const configs = new WeakMap<LintPlugin, BridgeConfig>();

/** `undefined` for other plugins, and unusable keys. */
export function bridgeConfigOf(plugin: LintPlugin): BridgeConfig | undefined {
  if (plugin.type !== "bridge") return undefined;
  const config = configs.get(plugin) ?? attempt(() => bridgeConfig.parse(plugin.raw));
  if (config) configs.set(plugin, config);
  return config;
}

/** Whether both plugins put containers on one segment. */
export function shareBridge(a: LintPlugin, b: LintPlugin): boolean {
  const [first, second] = [bridgeConfigOf(a), bridgeConfigOf(b)];
  return first !== undefined && first.bridge === second?.bridge && first.vlan === second.vlan;
}
