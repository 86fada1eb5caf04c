/** The errors of CHECK. @module */
import { CniError, Code } from "../../../spec/error.ts";

/** The error of a CHECK that found `what`: `Check failed: interface "eth0" is missing`. */
export function checkFailedError(what: string, details?: string): CniError {
  return new CniError(Code.Internal, `Check failed: ${what}`, details === undefined ? {} : { details });
}

/** Compares a value with what ADD left. @throws {CniError} naming both */
export function expectEqual<T>(what: string, actual: T, wanted: T): void {
  if (actual === wanted) return;
  throw checkFailedError(`${what} is ${formatValue(actual)}, expected ${formatValue(wanted)}`);
}

const formatValue = (value: unknown): string => value === undefined ? "missing" : JSON.stringify(value);
