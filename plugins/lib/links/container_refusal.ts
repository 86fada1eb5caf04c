/**
 * What the kernel refuses a DEL because of what the container has done to its own routes, addresses and links.
 *
 * @module
 */
import { SystemError } from "../../../ffi/sys/error.ts";

/**
 * The container has changed what an address or a route needs: the link, another address, another route, or IPv6 on the link. Others, as
 * for want of memory or rights, are not its doing.
 */
const CONTAINER_CODES = ["EACCES", "EADDRNOTAVAIL", "EHOSTUNREACH", "EINVAL", "ENETDOWN", "ENETUNREACH", "ENODEV"];
/** Of a list that the container kept changing while it was read. */
const CHANGING_LIST_CODES = ["ERESTART"];

/**
 * Gives something back to the container, and says what the container itself keeps it from: that must not keep it attached.
 *
 * @throws {Error} for every other cause
 */
export function giveBackOrLog(log: (message: string) => void, step: () => void): void {
  logErrors(CONTAINER_CODES, log, step);
}

/**
 * Looks at what the container has and takes things away, unless the container never leaves it as it is.
 *
 * @throws {Error} for every other cause
 */
export function takeAwayOrLog(log: (message: string) => void, step: () => void): void {
  logErrors(CHANGING_LIST_CODES, log, step);
}

function logErrors(codes: readonly string[], log: (message: string) => void, step: () => void): void {
  try {
    step();
  } catch (error) {
    if (!(error instanceof SystemError && codes.includes(error.code))) throw error;
    log(error.message);
  }
}
