import { LockedError } from "../../../ffi/sys/lock.ts";
import { CniError, Code } from "../../../spec/error.ts";

/** @throws {CniError} code 11 naming the holder and a remedy */
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
