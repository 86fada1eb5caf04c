/**
 * Taking turns in a container's namespace.
 *
 * @module
 */
import type { Netns } from "../../ffi/netns.ts";
import { lockOpenFile } from "../../ffi/sys/lock.ts";
import { tryAgainLater } from "./busy.ts";

/** As long as other interfaces of the container may take. */
const LOCK_TIMEOUT_MS = 10_000;

/**
 * Lets one at a time choose tables in a namespace: the reference plugins take the same lock, that of the namespace itself.
 *
 * @throws {CniError} code 11 naming who holds it, when the time is over
 */
export function lockTables(netns: Netns, timeoutMs = LOCK_TIMEOUT_MS): Disposable {
  const what = `network namespace "${netns.path}"`;
  return tryAgainLater(() => lockOpenFile(netns.fd, what, { timeoutMs }));
}
