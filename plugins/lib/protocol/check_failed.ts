import { CniError, Code } from "../../../spec/error.ts";

/** `Check failed: interface "eth0" is missing`. */
export function checkFailedError(what: string, details?: string): CniError {
  return new CniError(Code.Internal, `Check failed: ${what}`, details === undefined ? {} : { details });
}

/** @throws {CniError} naming both values */
export function expectEqual<T>(what: string, actual: T, wanted: T): void {
  if (actual === wanted) return;
  throw checkFailedError(`${what} is ${formatValue(actual)}, expected ${formatValue(wanted)}`);
}

const formatValue = (value: unknown): string => value === undefined ? "missing" : JSON.stringify(value);
