/**
 * Files that are read and changed in the middle, and the time of change of what is open.
 *
 * @see pread(2), pwrite(2), futimens(3)
 * @module
 */
import { SystemError } from "./error.ts";
import { type Descriptor, descriptor } from "./file.ts";
import { sys } from "./libc.ts";

const arm = process.arch === "arm64";
// asm-generic/fcntl.h; O_NOFOLLOW is another on arm64.
const O_RDWR = 0o2;
const O_CREAT = 0o100;
const O_EXCL = 0o200;
const O_NONBLOCK = 0o4000;
const O_NOFOLLOW = arm ? 0o100000 : 0o400000;
const O_CLOEXEC = 0o2000000;
const SYS_pread64 = arm ? 67 : 17;
const SYS_pwrite64 = arm ? 68 : 18;
const EIO = 5;

/** Opens a file for reading and writing; follows no link in the place of its name, and waits for no pipe. @throws {SystemError} */
export function openReadWrite(path: string): Descriptor {
  return descriptor(sys.open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0));
}

/** Creates a file that does not exist. @throws {SystemError} */
export function createReadWrite(path: string, mode = 0o600): Descriptor {
  return descriptor(sys.open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
}

/** Fills `buffer` with what the file has from byte `at` on. @throws {SystemError} `EIO` if it ends before */
export function pread(fd: number, offset: number, buffer: Uint8Array): void {
  const count = sys.syscall(SYS_pread64, fd, buffer, buffer.length, offset);
  if (count !== buffer.length) throw new SystemError("pread", EIO);
}

/** Writes all of `bytes` from byte `at` on. @throws {SystemError} */
export function pwrite(fd: number, offset: number, bytes: Uint8Array): void {
  for (let written = 0; written < bytes.length;) {
    written += sys.syscall(SYS_pwrite64, fd, bytes.subarray(written), bytes.length - written, offset + written);
  }
}

/** Sets when a file or directory was changed, in nanoseconds since 1970. @throws {SystemError} */
export function setMtime(fd: number, mtime: bigint): void {
  // struct timespec times[2]: last access, last change
  const UTIME_OMIT = 0x3ffffffen;
  sys.futimens(fd, new BigInt64Array([0n, UTIME_OMIT, mtime / 1_000_000_000n, mtime % 1_000_000_000n]));
}
