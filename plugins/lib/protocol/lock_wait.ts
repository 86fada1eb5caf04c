/**
 * What is said when others do not give up a lock.
 *
 * @module
 */
import { LockedError } from "../../../ffi/sys/lock.ts";
import { CniError, Code } from "../../../spec/error.ts";

/** Takes a lock. @throws {CniError} code 11 naming who holds it, and what can be done */
export function lockOrTryAgainLater<T>(lock: () => T): T {
  const startedAt = performance.now();
  try {
    return lock();
  } catch (error) {
    if (!(error instanceof LockedError)) throw error;
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
    const details = `waited for ${seconds} s; ${error.advice}`;
    throw new CniError(Code.TryAgainLater, error.message, { details, cause: error });
  }
}
