import { type BridgeConfig, bridgeConfig } from "../../plugins/bridge/config.ts";
import { attempt, type LintPlugin } from "./lint_file.ts";

/** `undefined` for other plugins, and unusable keys. */
export function bridgeConfigOf({ type, raw }: LintPlugin): BridgeConfig | undefined {
  return type === "bridge" ? attempt(() => bridgeConfig.parse(raw)) : undefined;
}

/** Whether both plugins put containers on one segment. */
export function shareBridge(a: LintPlugin, b: LintPlugin): boolean {
  const [first, second] = [bridgeConfigOf(a), bridgeConfigOf(b)];
  return first !== undefined && first.bridge === second?.bridge && first.vlan === second.vlan;
}
