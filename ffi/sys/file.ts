/**
 * Files by system calls alone: `node:fs` takes a millisecond to load, and its threads do not follow setns(2). @module
 */
import { EAGAIN, EFBIG, EINVAL, EIO, EISDIR } from "./errno.ts";
import { ignoreErrors, SystemError, withPurpose } from "./error.ts";
import { sys } from "./libc.ts";
import { pollFor } from "./poll.ts";
import { fstat } from "./stat.ts";
import {
  AT_FDCWD,
  AT_SYMLINK_FOLLOW,
  O_CLOEXEC,
  O_CREAT,
  O_EXCL,
  O_NOFOLLOW,
  O_NONBLOCK,
  O_RDONLY,
  O_RDWR,
  O_WRONLY,
  POLLIN,
  POLLOUT,
} from "./uapi.ts";

export const SYS_pread64 = process.arch === "arm64" ? 67 : 17;
export const SYS_pwrite64 = process.arch === "arm64" ? 68 : 18;

export interface Descriptor extends Disposable {
  readonly fd: number;
}

// linux/fcntl.h
const F_DUPFD_CLOEXEC = 1030;

/** Its number is 10 or higher. */
export function copyDescriptor(fd: number): Descriptor {
  return descriptor(sys.fcntl(fd, F_DUPFD_CLOEXEC, 10));
}

export function descriptor(fd: number): Descriptor {
  return { fd, [Symbol.dispose]: () => void sys.close(fd) };
}

/** Does not wait for a pipe's writer. */
export function openFile(path: string): Descriptor {
  return descriptor(withPurpose(`open "${path}"`, () => sys.open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0)));
}

/** At most 4 KiB; empty at the end. */
export function readAvailable(fd: number): Uint8Array {
  const buffer = new Uint8Array(4 * 1024);
  return buffer.subarray(0, sys.read(fd, buffer, buffer.length));
}

// Limits endless files such as /dev/zero.
const MAX_BYTES = 16 * 1024 * 1024;

/** @throws {SystemError} `EFBIG` beyond 16 MiB */
export function readAll(fd: number): Uint8Array<ArrayBuffer> {
  return readToEnd(fd, () => void pollFor(fd, POLLIN));
}

/** @param isAtEnd whether a short read that ended at `length` was the last */
function readToEnd(
  fd: number,
  onWouldBlock: () => void,
  isAtEnd: (length: number) => boolean = () => false,
): Uint8Array<ArrayBuffer> {
  let buffer = new Uint8Array(PAGE_BYTES);
  let length = 0;
  for (;;) {
    const count = ignoreErrors(["EAGAIN"], () => sys.read(fd, buffer.subarray(length), buffer.length - length));
    if (count === undefined) onWouldBlock();
    else if (count === 0) return buffer.subarray(0, length);
    else if ((length += count) === buffer.length) {
      if (length >= MAX_BYTES) throw new SystemError("read", EFBIG);
      const larger = new Uint8Array(buffer.length * 4);
      larger.set(buffer);
      buffer = larger;
    } else if (isAtEnd(length)) return buffer.subarray(0, length);
  }
}

export function writeAll(fd: number, bytes: Uint8Array): void {
  for (let written = 0; written < bytes.length;) {
    const count = ignoreErrors(["EAGAIN"], () => sys.write(fd, bytes.subarray(written), bytes.length - written));
    if (count === undefined) pollFor(fd, POLLOUT);
    else written += count;
  }
}

/** @param wait whether to wait for a pipe's writer; otherwise throws one of {@linkcode NOT_A_FILE_CODES} */
export function readFile(path: string, wait = true): Uint8Array<ArrayBuffer> {
  using file = openFile(path);
  return withPurpose(`read "${path}"`, () => {
    if (wait) return readAll(file.fd);
    requireOrdinaryFile(file.fd);
    return readToEnd(file.fd, throwWouldBlock);
  });
}

export function readTail(path: string, count: number): Uint8Array {
  const SEEK_END = 2;
  using file = openFile(path);
  return withPurpose(`read "${path}"`, () => {
    ignoreErrors(["EINVAL"], () => sys.lseek(file.fd, -count, SEEK_END));
    return readAll(file.fd);
  });
}

/** Waits for nothing. @throws {SystemError} one of {@linkcode NOT_A_FILE_CODES} for what is no ordinary file */
export function readText(path: string): string {
  return new TextDecoder().decode(readFile(path, false));
}

/**
 * The text of an ordinary file. Follows no link and waits for nothing, since others may have replaced the file.
 *
 * @returns `undefined` if there is none
 * @throws {SystemError} one of {@linkcode NOT_A_FILE_CODES}
 */
export function findText(path: string): string | undefined {
  return findTextWith(path, readOrdinaryText);
}

/** The kernel has no others than ordinary files below /proc. */
export function findKernelText(path: string): string | undefined {
  return findTextWith(path, readKernelText);
}

function findTextWith(path: string, read: (fd: number) => string): string | undefined {
  const flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  return ignoreErrors(["ENOENT", "ENOTDIR"], () => {
    using file = descriptor(withPurpose(`open "${path}"`, () => sys.open(path, flags, 0)));
    return withPurpose(`read "${path}"`, () => read(file.fd));
  });
}

export function readOrdinaryText(fd: number): string {
  requireOrdinaryFile(fd);
  return readKernelText(fd);
}

/** As {@linkcode readOrdinaryText} for a file below /proc. */
export function readKernelText(fd: number): string {
  return new TextDecoder().decode(readToEnd(fd, throwWouldBlock, endsAtShortRead));
}

/** A device may block although O_NONBLOCK forbids it: a suspended disk does. */
function requireOrdinaryFile(fd: number): void {
  const { isFile, isDirectory } = fstat(fd);
  if (isDirectory) throw new SystemError("read", EISDIR);
  if (!isFile) throw new SystemError("read", EINVAL, undefined, "it is no ordinary file");
}

// The page cache reads at least this much.
const PAGE_BYTES = 4096;

/**
 * The last read of an ordinary file or sysctl is short. A failing disk ends reads after whole pages. Other files of
 * /proc come in pieces.
 *
 * @see mm/filemap.c filemap_read(), fs/proc/proc_sysctl.c proc_sys_call_handler()
 */
const endsAtShortRead = (length: number): boolean => length % PAGE_BYTES !== 0;

function throwWouldBlock(): never {
  throw new SystemError("read", EAGAIN);
}

/** {@linkcode findText} throws these for everything but ordinary files. */
export const NOT_A_FILE_CODES: readonly string[] = [
  "ELOOP",
  "EISDIR",
  "EAGAIN",
  "EINVAL",
  "ENXIO",
  "ENODEV",
  "EFBIG",
];

/** The file must exist, as those of /proc/sys. */
export function overwrite(path: string, text: string): void {
  withPurpose(`write "${text}" to "${path}"`, () => {
    using file = descriptor(sys.open(path, O_WRONLY | O_CLOEXEC, 0));
    writeAll(file.fd, new TextEncoder().encode(text));
  });
}

/** Follows no link, waits for no pipe. */
export function openReadWrite(path: string): Descriptor {
  return descriptor(sys.open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0));
}

export function createReadWrite(path: string, mode = 0o600): Descriptor {
  return descriptor(sys.open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
}

export function pread(fd: number, offset: number, buffer: Uint8Array): void {
  const count = sys.syscall(SYS_pread64, fd, buffer, buffer.length, offset);
  if (count !== buffer.length) throw new SystemError("pread", EIO);
}

export function pwrite(fd: number, offset: number, bytes: Uint8Array): void {
  for (let written = 0; written < bytes.length;) {
    written += sys.syscall(SYS_pwrite64, fd, bytes.subarray(written), bytes.length - written, offset + written);
  }
}

/** @param mtime in nanoseconds since 1970 */
export function setMtime(fd: number, mtime: bigint): void {
  // struct timespec times[2]: access, modification
  const UTIME_OMIT = 0x3ffffffen;
  sys.futimens(fd, new BigInt64Array([0n, UTIME_OMIT, mtime / 1_000_000_000n, mtime % 1_000_000_000n]));
}

/** Returns false if `name` exists. */
export function hardLink(path: string, name: string): boolean {
  return withPurpose(
    `create "${name}"`,
    () => ignoreErrors(["EEXIST"], () => sys.linkat(AT_FDCWD, path, AT_FDCWD, name, AT_SYMLINK_FOLLOW)) !== undefined,
  );
}

export function renameFile(path: string, name: string): void {
  withPurpose(`rename "${path}" to "${name}"`, () => sys.rename(path, name));
}

/** Returns false if there was none. */
export function removeFile(path: string): boolean {
  return withPurpose(
    `remove "${path}"`,
    () => ignoreErrors(["ENOENT", "ENOTDIR"], () => sys.unlink(path)) !== undefined,
  );
}
