/**
 * A mark that a directory loses as soon as anybody creates, removes or renames something in it.
 *
 * It is the time of change: a random number of nanoseconds in a second that has passed, which the kernel replaces by the time of
 * its clock however little of that went by. A time that the kernel set would not do: two changes within one tick have the same.
 *
 * @module
 */
import { ESTALE } from "../../ffi/sys/errno.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { setMtime } from "../../ffi/sys/file.ts";
import { fstat } from "../../ffi/sys/stat.ts";

/** Tells this state of the directory that is open as `fd` from every other. @throws {SystemError} */
export function readStamp(fd: number, boot: string): string {
  const { identity, mtime, ctime } = fstat(fd);
  return `${boot} ${identity} ${mtime} ${ctime}`;
}

/** Gives the directory a time of change that no clock gives: from here on, its stamp is none that it ever had. @throws {SystemError} */
export function renewStamp(fd: number): bigint {
  const second = Math.floor(Date.now() / 1000) - 1;
  const time = BigInt(second) * 1_000_000_000n + BigInt(Math.floor(Math.random() * 1e9));
  setMtime(fd, time);
  return time;
}

/**
 * The stamp of a directory that nobody has changed since {@linkcode renewStamp} gave it this time of change.
 *
 * @throws {SystemError} `ESTALE` if it was changed, and on a file system with coarser times, where two changes could look like one
 */
export function readRenewedStamp(fd: number, boot: string, time: bigint): string {
  const stamp = readStamp(fd, boot);
  if (!stamp.includes(` ${time} `)) throw new SystemError("futimens", ESTALE, "seal the directory");
  return stamp;
}
