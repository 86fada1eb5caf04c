import { parseNetworkConfigList } from "../../spec/network_config_list.ts";
import { DEFAULT_NETWORK_NAME } from "../default_network.ts";
import { loadNetwork } from "../load.ts";
import type { Runtime } from "../runtime.ts";
import { type ConfiguredNetwork, readNetworkFiles } from "./network_files.ts";

/**
 * A network by its name, or by the path of its file.
 *
 * @throws {CniError} as {@linkcode loadNetwork}, unless an attachment remembers the configuration
 */
export function findNetwork(
  runtime: Runtime,
  directory: string,
  network: string,
  log: (message: string) => void,
): ConfiguredNetwork {
  if (network.includes("/")) return { list: loadNetwork(network, { log }), origin: "file", file: network };
  const file = readNetworkFiles(directory).find(({ list }) => list?.name === network)?.file;
  if (file !== undefined) return { list: loadNetwork(network, { directory, log }), origin: "file", file };
  const cached = runtime.attachments(network).map((attachment) => runtime.attachedConfiguration(network, attachment))
    .find((text) => text !== undefined);
  const isRemembered = cached !== undefined && network !== DEFAULT_NETWORK_NAME;
  if (isRemembered) return { list: parseNetworkConfigList(cached), origin: "attachment" };
  return { list: loadNetwork(network, { directory, log }), origin: "built-in" };
}
