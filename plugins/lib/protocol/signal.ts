/** Ends an ADD on a signal, while all of it can still be undone. @module */
import { takePendingSignal } from "../../../ffi/sys/signals.ts";
import { CniError, Code } from "../../../spec/error.ts";

/** @throws {CniError} code 11 if a blocked signal asks this process to end */
export function throwIfSignalled(): void {
  const signal = takePendingSignal();
  if (signal === undefined) return;
  throw new CniError(Code.TryAgainLater, `Cannot attach the container: the process was asked to end by ${signal}`);
}
