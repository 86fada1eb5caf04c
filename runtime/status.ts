import type { AnyPlugin } from "../plugins/lib/protocol/context.ts";
import { requirePrevResult } from "../plugins/lib/protocol/plugin.ts";
import { requireWritableState } from "../plugins/lib/protocol/writable_state.ts";
import { findPlugin, isIpamPlugin } from "../plugins/registry.ts";
import { CniError, Code } from "../spec/error.ts";
import type { NetworkConfigList, PluginEntry } from "../spec/network_config_list.ts";
import { atLeast, introducedIn } from "../spec/version.ts";
import { callPlugin, locatePlugin, logProblems, withPluginName } from "./call_plugin.ts";
import type { RuntimeContext } from "./context.ts";

/**
 * Does STATUS (SPEC §STATUS). Asks built-in plugins in every version, also for what stops packets.
 *
 * @throws {CniError} code 50 or 51 if an ADD would fail, code 7 for an unusable configuration
 */
export function getNetworkListStatus(runtime: RuntimeContext, list: NetworkConfigList): void {
  requireAddable(runtime, list);
  logProblems(runtime, list);
}

/** {@linkcode getNetworkListStatus} without a look at what stops packets. */
export function requireAddable(runtime: RuntimeContext, list: NetworkConfigList): void {
  requireWritableState("remember attachments", `${runtime.cacheDirectory}/results`);
  const hasStatus = atLeast(list.cniVersion, introducedIn.STATUS);
  const notAsked: string[] = [];
  const interfacePlugins: string[] = [];
  for (const [i, plugin] of list.plugins.entries()) {
    const location = withPluginName(list, plugin, "STATUS", () => {
      const found = locatePlugin(runtime, list, plugin);
      const isMisplaced = i === 0 && "plugin" in found && found.plugin.needsPrevResult?.(plugin);
      if (isMisplaced) requirePrevResult({ prevResult: undefined }, plugin.type);
      return found;
    });
    if ("plugin" in location && makesInterface(location.plugin, plugin)) interfacePlugins.push(plugin.type);
    if (hasStatus || "plugin" in location) callPlugin(runtime, list, plugin, { command: "STATUS" });
    else notAsked.push(JSON.stringify(plugin.type));
  }
  if (interfacePlugins.length > 1) {
    const types = interfacePlugins.map((type) => JSON.stringify(type)).join(" and ");
    throw new CniError(Code.InvalidConfig, `Cannot use network "${list.name}": each of ${types} makes its interface`, {
      details: "the second finds the name in use; make a network of each",
    });
  }
  if (notAsked.length > 0) {
    runtime.log(
      `Network "${list.name}" has cniVersion ${list.cniVersion}, which has no STATUS: ${notAsked.join(", ")} not asked`,
    );
  }
}

function makesInterface(plugin: AnyPlugin, entry: PluginEntry): boolean {
  const isBuiltin = plugin === findPlugin(plugin.name) && plugin.name !== "loopback" && !isIpamPlugin(plugin.name);
  return isBuiltin && plugin.needsPrevResult?.(entry) !== true;
}
