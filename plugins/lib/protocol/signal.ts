import { takePendingSignal } from "../../../ffi/sys/signals.ts";
import { CniError, Code } from "../../../spec/error.ts";

/** For ADD, while it can be undone. @throws {CniError} code 11 if a blocked termination signal is pending */
export function throwIfSignalled(): void {
  const signal = takePendingSignal();
  if (signal === undefined) return;
  throw new CniError(Code.TryAgainLater, `Cannot attach the container: the process was asked to end by ${signal}`);
}
