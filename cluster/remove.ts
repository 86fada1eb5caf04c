import { findEntryNames, parentOf, removeEmptyDirectory } from "../ffi/sys/directory.ts";
import { removeFile } from "../ffi/sys/file.ts";
import { removeClusterNetwork } from "./network/remove.ts";
import { DEFAULT_STATUS_DIRECTORY } from "./status.ts";
import { nodesFilePath } from "./stored_nodes.ts";

/** Removes what the part has made in the kernel, and its files. The network's file is the engines'. */
export function removeCluster(cacheDirectory: string, log: (message: string) => void): void {
  removeClusterNetwork(log);
  for (const directory of [DEFAULT_STATUS_DIRECTORY, parentOf(nodesFilePath(cacheDirectory))]) {
    for (const name of findEntryNames(directory) ?? []) removeFile(`${directory}/${name}`);
    removeEmptyDirectory(directory);
  }
}
