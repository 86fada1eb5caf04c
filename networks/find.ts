import { findStat } from "../ffi/sys/stat.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import { DEFAULT_NETWORK_NAME } from "../runtime/default_network.ts";
import { listConfFiles, loadNetwork } from "../runtime/load.ts";
import type { Runtime } from "../runtime/runtime.ts";
import { type ConfiguredNetwork, readNetworkFiles } from "./network_files.ts";

/**
 * A network by its name, or by a path of its file. A file of the directory has the path there, whatever links lead to it.
 *
 * @throws {CniError} as {@linkcode loadNetwork}, unless an attachment remembers the configuration
 */
export function findNetwork(
  runtime: Runtime,
  directory: string,
  network: string,
  log: (message: string) => void,
): ConfiguredNetwork {
  if (network.includes("/")) {
    const file = findConfFile(directory, network) ?? network;
    return { list: loadNetwork(file, { log }), origin: "file", file };
  }
  const file = readNetworkFiles(directory).find(({ list }) => list?.name === network)?.file;
  if (file !== undefined) return { list: loadNetwork(network, { directory, log }), origin: "file", file };
  const cached = runtime.attachments(network).map((attachment) => runtime.attachedConfiguration(network, attachment))
    .find((text) => text !== undefined);
  const isRemembered = cached !== undefined && network !== DEFAULT_NETWORK_NAME;
  if (isRemembered) return { list: parseNetworkConfigList(cached), origin: "attachment" };
  return { list: loadNetwork(network, { directory, log }), origin: "built-in" };
}

function findConfFile(directory: string, path: string): string | undefined {
  const files = listConfFiles(directory);
  if (files.includes(path)) return path;
  const identity = findStat(path)?.identity;
  return identity === undefined ? undefined : files.find((file) => findStat(file)?.identity === identity);
}
