import { CniError, Code } from "../../../spec/error.ts";
import { type Owner, ownerRestoreHint } from "../model/owner.ts";

export class CheckFailedError extends CniError {
  /** What differs: `interface "eth0" is missing`. */
  readonly difference: string;
  readonly isRestorable: boolean;

  constructor(difference: string, details: string | undefined, isRestorable: boolean) {
    super(Code.Internal, `Check failed: ${difference}`, details === undefined ? {} : { details });
    this.difference = difference;
    this.isRestorable = isRestorable;
  }
}

export function checkFailedError(difference: string, details?: string): CheckFailedError {
  return new CheckFailedError(difference, details, false);
}

/** The rules come back by `restore`. @param place `set "hostports4" of table "cni"` */
export function missingRulesOf(owner: Owner, difference: string, place?: string): CheckFailedError {
  const hint = ownerRestoreHint(owner);
  return new CheckFailedError(difference, place === undefined ? hint : `${place}; ${hint}`, true);
}

export function expectEqual<T>(what: string, actual: T, wanted: T): void {
  if (actual === wanted) return;
  throw checkFailedError(`${what} is ${formatValue(actual)}, expected ${formatValue(wanted)}`);
}

export const formatValue = (value: unknown): string => value === undefined ? "missing" : JSON.stringify(value);
