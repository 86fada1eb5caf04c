/** One plugin at a time chooses routing tables in a container's namespace. @module */
import type { Netns } from "../../../ffi/netns/netns.ts";
import { lockNetns } from "../../../ffi/netns/lock.ts";
import { isAboutDirectory } from "../../../ffi/sys/directory_in_place.ts";
import { LockedError } from "../../../ffi/sys/lock.ts";
import { lockOrTryAgainLater } from "../protocol/lock_wait.ts";

/** Other interfaces of the container may be attached first. */
const LOCK_TIMEOUT_MS = 10_000;
/** An ADD holds the lock for less, unless the machine is very busy. */
const DEL_LOCK_TIMEOUT_MS = 1000;

/** @throws {CniError} code 11 naming the holder, after the timeout */
export function lockRoutingTables(netns: Netns, timeoutMs = LOCK_TIMEOUT_MS): Disposable {
  return lockOrTryAgainLater(() => lockNetns(netns, "routing-tables", timeoutMs));
}

/**
 * For a DEL. After the timeout, or for a directory in the lock's place, it logs this and continues without the lock.
 */
export function tryLockRoutingTables(netns: Netns, log: (message: string) => void): Disposable | undefined {
  try {
    return lockNetns(netns, "routing-tables", DEL_LOCK_TIMEOUT_MS);
  } catch (error) {
    if (!(error instanceof LockedError || isAboutDirectory(error))) throw error;
    log(`${error.message}; continuing without it`);
    return undefined;
  }
}
