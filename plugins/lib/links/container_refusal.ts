/** A container's own changes must not fail its DEL, or it stays attached. @module */
import { SystemError } from "../../../ffi/sys/error.ts";

type Log = (message: string) => void;

/** The container changed the link, address or route that this one needs, or disabled IPv6. */
const CONTAINER_CODES = ["EACCES", "EADDRNOTAVAIL", "EHOSTUNREACH", "EINVAL", "ENETDOWN", "ENETUNREACH", "ENODEV"];
/** The container kept changing a list during its dump. */
const CHANGING_LIST_CODES = ["ERESTART"];

/** Runs a step that restores something; logs the container's refusals. @throws {Error} for every other cause */
export function giveBackOrLog(log: Log, step: () => void): void {
  logErrors(CONTAINER_CODES, log, step);
}

/** Runs a step that lists and removes; logs a list that never settles. @throws {Error} for every other cause */
export function takeAwayOrLog(log: Log, step: () => void): void {
  logErrors(CHANGING_LIST_CODES, log, step);
}

function logErrors(codes: readonly string[], log: Log, step: () => void): void {
  try {
    step();
  } catch (error) {
    if (!(error instanceof SystemError && codes.includes(error.code))) throw error;
    log(error.message);
  }
}
