/** Pods of a node that has just started are to find the routes to those of other nodes. @module */
import { isCurrent } from "../cluster/status_file.ts";
import { findClusterStatus } from "../cluster/status.ts";

const POLL_MS = 50;
/** Plugins wait five seconds, unless told otherwise. */
const PATIENCE_MS = 4000;

/**
 * Settles when the part `cluster` has its known nodes in the kernel, which it has stored, or when that takes too long.
 *
 * @param clusterDirectory the state directory of that part
 */
export async function untilRoutesAreBack(clusterDirectory: string): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS;
  while (performance.now() < deadline) {
    const status = findClusterStatus(clusterDirectory);
    if (status?.isSynced && isCurrent(status)) return;
    await Bun.sleep(POLL_MS);
  }
}
