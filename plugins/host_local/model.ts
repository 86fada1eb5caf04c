import { findStat } from "../../ffi/sys/stat.ts";
import { CniError, withLocation } from "../../spec/error.ts";
import { derivePluginConfig, type NetworkConfigList } from "../../spec/network_config_list.ts";
import type { PluginModel } from "../lib/model/plugin_model.ts";
import type { NetworkRemoval, OtherNetwork, RemovalEffect } from "../lib/model/removal.ts";
import { parseHostLocalConfig } from "./config.ts";
import { readInventory } from "./inventory.ts";
import { listHolders, networkDirectoryOf, readAddressPools, removeNetworkDirectory } from "./network_directory.ts";

const model: PluginModel = {
  reservations(config) {
    const directory = networkDirectoryOf(config);
    return {
      rangeSets: () => parseHostLocalConfig(config).sets,
      holders: () => readInventory(directory).holders,
      currentHolders: () => listHolders(directory),
      pools: () => readAddressPools(config),
    };
  },
  planRemoval: planStateRemoval,
};
export default model;

function planStateRemoval({ list, readOthers, log }: NetworkRemoval): RemovalEffect[] {
  const own = [...new Set(directoriesOf(list))].filter((directory) => findStat(directory));
  if (own.length === 0) return [];
  const shared = new Set(readOthers().flatMap((other) => usableDirectoriesOf(other, log)));
  return own.filter((directory) => !shared.has(directory)).map((directory) => ({
    action: "remove-directory",
    target: directory,
    description: `remove the directory "${directory}" with the state of host-local`,
    carryOut: () => removeNetworkDirectory(directory, log),
  }));
}

function directoriesOf(list: NetworkConfigList): string[] {
  return list.plugins.filter(({ ipamType }) => ipamType === "host-local")
    .map((entry) => networkDirectoryOf(derivePluginConfig(list, entry, { command: "ADD" })));
}

/** A network whose configuration is wrong gets no addresses, so it has no state to share. */
function usableDirectoriesOf({ file, list }: OtherNetwork, log: NetworkRemoval["log"]): string[] {
  try {
    return withLocation({ network: list.name }, () => directoriesOf(list));
  } catch (error) {
    log(`Ignoring configuration file "${file}": ${CniError.from(error).message}`);
    return [];
  }
}
