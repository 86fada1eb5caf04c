import { findEntryNames, parentOf, removeEmptyDirectory } from "../ffi/sys/directory.ts";
import { removeFile } from "../ffi/sys/file.ts";
import { policyNamespacesPath } from "../plugins/lib/policy/stored_namespaces.ts";
import { DEFAULT_POLICY_STATE_DIRECTORY } from "./status.ts";

/** Removes the files of the part. Its tables go with those of the plugins. */
export function removePolicyFiles(cacheDirectory: string): void {
  for (const directory of [DEFAULT_POLICY_STATE_DIRECTORY, parentOf(policyNamespacesPath(cacheDirectory))]) {
    for (const name of findEntryNames(directory) ?? []) removeFile(`${directory}/${name}`);
    removeEmptyDirectory(directory);
  }
}
