/**
 * Taking turns in a container's namespace.
 *
 * @module
 */
import type { Netns } from "../../ffi/netns.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { lockOpenFile } from "../../ffi/sys/lock.ts";
import { CniError, Code } from "../spec/error.ts";

/** As long as other interfaces of the container may take. */
const LOCK_TIMEOUT_MS = 10_000;

/**
 * Lets one at a time choose tables in a namespace: the reference plugins take the same lock, that of the namespace itself.
 *
 * @throws {CniError} code 11 when the time is over
 */
export function lockTables(netns: Netns): Disposable {
  try {
    return lockOpenFile(netns.fd, `network namespace "${netns.path}"`, { timeoutMs: LOCK_TIMEOUT_MS });
  } catch (error) {
    if (!(error instanceof SystemError && error.code === "EAGAIN")) throw error;
    throw new CniError(Code.TryAgainLater, error.message, { cause: error });
  }
}
