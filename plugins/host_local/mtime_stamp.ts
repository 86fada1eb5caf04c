/**
 * A stamp that a directory loses when an entry is created, removed or renamed.
 *
 * The stamp is a modification time with random nanoseconds in a past second. Each change replaces it by the kernel's clock. A time of that
 * clock is no stamp: two changes within one tick share it.
 */
import { ESTALE } from "../../ffi/sys/errno.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { setMtime } from "../../ffi/sys/file.ts";
import { fstat } from "../../ffi/sys/stat.ts";

export function readStamp(fd: number, boot: string): string {
  const { identity, mtime, ctime } = fstat(fd);
  return `${boot} ${identity} ${mtime} ${ctime}`;
}

/** Sets a random modification time, in nanoseconds since 1970. Earlier stamps become void. */
export function renewStamp(fd: number): bigint {
  const second = Math.floor(Date.now() / 1000) - 1;
  const time = BigInt(second) * 1_000_000_000n + BigInt(Math.floor(Math.random() * 1e9));
  setMtime(fd, time);
  return time;
}

/**
 * The stamp of a directory that is unchanged since {@linkcode renewStamp} returned `time`.
 *
 * @throws {SystemError} `ESTALE` if it changed, or if the file system rounds times
 */
export function readRenewedStamp(fd: number, boot: string, time: bigint): string {
  const stamp = readStamp(fd, boot);
  if (!stamp.includes(` ${time} `)) throw new SystemError("futimens", ESTALE, "seal the directory");
  return stamp;
}
