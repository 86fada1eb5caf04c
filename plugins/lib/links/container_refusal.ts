/**
 * DEL goes on where the container itself is in the way, by its own routes, addresses and links: it must not stay attached.
 *
 * @module
 */
import { SystemError } from "../../../ffi/sys/error.ts";

type Log = (message: string) => void;

/** The container has changed the link, address or route that this one needs, or switched IPv6 off. */
const CONTAINER_CODES = ["EACCES", "EADDRNOTAVAIL", "EHOSTUNREACH", "EINVAL", "ENETDOWN", "ENETUNREACH", "ENODEV"];
/** The container kept changing a list while it was read. */
const CHANGING_LIST_CODES = ["ERESTART"];

/** Gives something back to the container; logs what the container keeps it from. @throws {Error} for every other cause */
export function giveBackOrLog(log: Log, step: () => void): void {
  logErrors(CONTAINER_CODES, log, step);
}

/** Lists what the container has and takes things away; logs if the list never settles. @throws {Error} for every other cause */
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
