import { CniError } from "../spec/error.ts";
import { parseJson } from "../spec/jsonc.ts";
import { isJsonObject } from "../spec/schema.ts";
import type { Runtime } from "../runtime/runtime.ts";
import { findNetworks } from "./list.ts";
import type { ConfiguredNetwork } from "./network_files.ts";
import { CREATOR, CREATOR_KEY } from "./new_network.ts";
import { NetworkInUseError, type RemovalContext, type RemovalReport, removeNetwork } from "./remove.ts";
import { listNetworkUsers } from "./users.ts";

export interface UnusedNetwork extends ConfiguredNetwork {
  readonly file: string;
}

/** @param all also those that `create` has not made: engines may rely on them */
export function findUnusedNetworks(
  runtime: Runtime,
  directory: string,
  all: boolean,
  log: (message: string) => void,
): UnusedNetwork[] {
  const attachments = runtime.attachments();
  const isUnused = ({ list, file }: ConfiguredNetwork) => {
    try {
      return listNetworkUsers(list, attachments.filter(({ network }) => network === list.name)).length === 0;
    } catch (error) {
      log(`Ignoring configuration file "${file}": ${CniError.from(error).message}`);
      return false;
    }
  };
  return findNetworks(runtime, directory, attachments, log).filter((
    network,
  ): network is UnusedNetwork => network.file !== undefined && (all || isCreatedHere(network)) && isUnused(network));
}

/**
 * Removes networks, except those that a container has come to use meanwhile, which are logged.
 *
 * @throws {CniError} the first other failure
 */
export function pruneNetworks(
  networks: readonly ConfiguredNetwork[],
  context: RemovalContext,
  report: RemovalReport,
): void {
  for (const network of networks) {
    const { failure } = removeNetwork(network, context, false, (removed) => {
      if (!(removed.failure instanceof NetworkInUseError)) report(removed);
    });
    if (failure instanceof NetworkInUseError) context.log(failure.message);
    else if (failure) throw failure;
  }
}

function isCreatedHere({ list }: ConfiguredNetwork): boolean {
  const document = parseJson(list.text);
  return isJsonObject(document) && document[CREATOR_KEY] === CREATOR;
}
