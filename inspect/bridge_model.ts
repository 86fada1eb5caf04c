import type { BridgeModel } from "../plugins/lib/model/network_model.ts";
import { findModel } from "../plugins/registry.ts";
import { ConfigError } from "../spec/error.ts";
import type { PluginEntry } from "../spec/network_config_list.ts";

/** A configuration may leave the bridge's name to its plugin. `undefined` also if a key is wrong: an ADD says that. */
export function findBridgeModel({ type, raw }: Pick<PluginEntry, "type" | "raw">): BridgeModel | undefined {
  try {
    return findModel(type)?.network?.(raw).bridge;
  } catch (error) {
    if (error instanceof ConfigError) return undefined;
    throw error;
  }
}
