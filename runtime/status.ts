/**
 * STATUS: whether an ADD could be served.
 *
 * @see SPEC.md §STATUS
 * @module
 */
import type { NetworkConfigList } from "../spec/network_config_list.ts";
import { atLeast, introducedIn } from "../spec/version.ts";
import { callPlugin } from "./call_plugin.ts";
import type { RuntimeContext } from "./context.ts";

/** Asks the plugins whether they could serve an ADD. @throws {CniError} with code 50 or 51 if one could not */
export function getNetworkListStatus(runtime: RuntimeContext, list: NetworkConfigList): void {
  if (!atLeast(list.cniVersion, introducedIn.STATUS)) {
    runtime.log(`Network "${list.name}" has cniVersion ${list.cniVersion}, which has no STATUS: nothing was asked`);
    return;
  }
  for (const plugin of list.plugins) callPlugin(runtime, list, plugin, { command: "STATUS" });
}
