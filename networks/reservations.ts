import type { AddressReservations } from "../plugins/lib/model/reservations.ts";
import { findModel } from "../plugins/registry.ts";
import { withLocation } from "../spec/error.ts";
import { derivePluginConfig, type NetworkConfigList, type PluginEntry } from "../spec/network_config_list.ts";

/** Finds those of the network's IPAM plugins. Call it with all plugins loaded. @throws {ConfigError} with the file */
export function reservationsOf(list: NetworkConfigList): AddressReservations[] {
  return list.plugins.flatMap((entry) => reservationsOfEntry(list, entry) ?? []);
}

/** Finds those of the plugin's IPAM plugin, if that keeps any. @throws {ConfigError} with the file */
export function reservationsOfEntry(list: NetworkConfigList, entry: PluginEntry): AddressReservations | undefined {
  const model = entry.ipamType === undefined ? undefined : findModel(entry.ipamType);
  const location = { network: list.name, ...list.source !== undefined && { file: list.source } };
  return withLocation(location, () => model?.reservations?.(derivePluginConfig(list, entry, { command: "ADD" })));
}
