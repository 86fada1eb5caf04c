/**
 * Files, by system calls alone: loading `node:fs` would cost each call of a plugin a millisecond, and its asynchronous half runs in
 * threads that do not follow `setns(2)`.
 *
 * @see open(2), getdents64(2), flock(2)
 * @module
 */
import { forPurpose, unless } from "./error.ts";
import { sys } from "./libc.ts";

// asm-generic/fcntl.h; the three that differ on arm64 are chosen below.
const O_RDONLY = 0;
const O_WRONLY = 0o1;
const O_CREAT = 0o100;
const O_EXCL = 0o200;
const O_CLOEXEC = 0o2000000;
const arm = process.arch === "arm64";
const O_DIRECTORY = arm ? 0o40000 : 0o200000;
const O_NOFOLLOW = arm ? 0o100000 : 0o400000;
const SYS_fstat = arm ? 80 : 5;
const SYS_getdents64 = arm ? 61 : 217;
const DT_UNKNOWN = 0;
const DT_REG = 8;
const LOCK_SH = 1;
const LOCK_EX = 2;
const LOCK_NB = 4;
const POLLIN = 1;
const POLLOUT = 4;

/** An open file descriptor, closed when its scope ends. */
export interface Descriptor extends Disposable {
  readonly fd: number;
}

function descriptor(fd: number): Descriptor {
  return { fd, [Symbol.dispose]: () => void sys.close(fd) };
}

/** Opens `path` for reading; never waits for a writer of a pipe. @throws {SystemError} */
export function openFile(path: string): Descriptor {
  const O_NONBLOCK = 0o4000;
  return descriptor(forPurpose(`open "${path}"`, () => sys.open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0)));
}

/** What `fd` has right now, at most 64 KiB; empty at its end. @throws {SystemError} */
export function readSome(fd: number): Uint8Array {
  const buffer = new Uint8Array(64 * 1024);
  return buffer.subarray(0, sys.read(fd, buffer, buffer.length));
}

/** Reads from `fd` to its end, also when it is set to not block. @throws {SystemError} */
export function readAll(fd: number): Uint8Array<ArrayBuffer> {
  let buffer = new Uint8Array(16 * 1024);
  let length = 0;
  for (;;) {
    const count = unless(["EAGAIN"], () => sys.read(fd, buffer.subarray(length), buffer.length - length));
    if (count === undefined) awaitReady(fd, POLLIN);
    else if (count === 0) return buffer.subarray(0, length);
    else if ((length += count) === buffer.length) {
      const larger = new Uint8Array(buffer.length * 4);
      larger.set(buffer);
      buffer = larger;
    }
  }
}

/** Writes all of `bytes` to `fd`, also into a slow pipe that is set to not block. @throws {SystemError} */
export function writeAll(fd: number, bytes: Uint8Array): void {
  for (let done = 0; done < bytes.length;) {
    const count = unless(["EAGAIN"], () => sys.write(fd, bytes.subarray(done), bytes.length - done));
    if (count === undefined) awaitReady(fd, POLLOUT);
    else done += count;
  }
}

/** Does nothing for a while. */
export function pause(ms: number): void {
  sys.poll(null, 0, ms);
}

function awaitReady(fd: number, events: number, timeoutMs = -1): boolean {
  // struct pollfd { int fd; short events; short revents; }
  return sys.poll(new Int32Array([fd, events]), 1, timeoutMs) > 0;
}

/** True once `fd` has something to read; false after `timeoutMs`. @throws {SystemError} */
export function awaitReadable(fd: number, timeoutMs: number): boolean {
  return awaitReady(fd, POLLIN, timeoutMs);
}

/** The content of a regular file or of a file in /proc. @throws {SystemError} */
export function readFile(path: string): Uint8Array<ArrayBuffer> {
  using file = openFile(path);
  return forPurpose(`read "${path}"`, () => readAll(file.fd));
}

/** The content of a file as UTF-8 text. @throws {SystemError} */
export function readText(path: string): string {
  return new TextDecoder().decode(readFile(path));
}

/** The content of a file, or `undefined` if there is none. @throws {SystemError} for every other reason */
export function findText(path: string): string | undefined {
  return unless(["ENOENT", "ENOTDIR"], () => readText(path));
}

/** Writes `text` into an existing file such as those of /proc/sys. @throws {SystemError} */
export function overwrite(path: string, text: string): void {
  forPurpose(`write "${text}" to "${path}"`, () => {
    using file = descriptor(sys.open(path, O_WRONLY | O_CLOEXEC, 0));
    writeAll(file.fd, new TextEncoder().encode(text));
  });
}

/**
 * Writes a complete new file beside `path`, under a hidden name that no reader looks for and that ends in `.tmp`.
 *
 * @param durable on disk before it returns, so that not even a power cut leaves half of it
 * @returns its path
 * @throws {SystemError}
 */
export function writeTemporary(path: string, text: string, mode = 0o600, durable = true): string {
  const slash = path.lastIndexOf("/") + 1;
  // At random: process numbers are equal in two containers that share the directory.
  const random = Math.random().toString(36).slice(2);
  const temporary = `${path.slice(0, slash)}.${path.slice(slash, slash + 100)}.${random}.tmp`;
  forPurpose(`write "${temporary}"`, () => {
    using file = descriptor(sys.open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    try {
      writeAll(file.fd, new TextEncoder().encode(text));
      if (durable) sys.fsync(file.fd);
    } catch (error) {
      sys.unlink(temporary);
      throw error;
    }
  });
  return temporary;
}

/** Replaces `path` as a whole: a reader, and a crash at any point, finds the old content or the new. @throws {SystemError} */
export function replaceFile(path: string, text: string, mode = 0o600, durable = true): void {
  forPurpose(`write "${path}"`, () => {
    const temporary = writeTemporary(path, text, mode, durable);
    try {
      sys.rename(temporary, path);
    } catch (error) {
      sys.unlink(temporary);
      throw error;
    }
  });
}

/** Creates `path` with its content in one step; false if it exists. A crash leaves the whole file or none. @throws {SystemError} */
export function createFile(path: string, text: string, mode = 0o600): boolean {
  return forPurpose(`create "${path}"`, () => {
    const temporary = writeTemporary(path, text, mode);
    try {
      return linkFile(temporary, path);
    } finally {
      sys.unlink(temporary);
    }
  });
}

/** Gives the file at `path` a second name; false if there is a file of that name already. @throws {SystemError} */
export function linkFile(path: string, name: string): boolean {
  return forPurpose(`create "${name}"`, () => unless(["EEXIST"], () => sys.link(path, name)) !== undefined);
}

/** Gives the file at `path` another name, which it takes from any other file. @throws {SystemError} */
export function renameFile(path: string, name: string): void {
  forPurpose(`rename "${path}" to "${name}"`, () => sys.rename(path, name));
}

/** Makes what was created or renamed in a directory survive a power cut. @throws {SystemError} */
export function syncDirectory(path: string): void {
  forPurpose(`sync "${path}"`, () => {
    using directory = openFile(path);
    sys.fsync(directory.fd);
  });
}

/** Removes a file; false if there was none. @throws {SystemError} */
export function removeFile(path: string): boolean {
  return forPurpose(`remove "${path}"`, () => unless(["ENOENT", "ENOTDIR"], () => sys.unlink(path)) !== undefined);
}

/** Creates a directory and those above it, as `mkdir -p` does. @throws {SystemError} */
export function ensureDirectory(path: string, mode = 0o755): void {
  forPurpose(`create directory "${path}"`, () => {
    if (unless(["ENOENT"], () => makeDirectory(path, mode)) !== undefined) return;
    const parent = path.replace(/\/+[^/]*\/*$/, "");
    if (parent === "" || parent === path) throw new RangeError(`Cannot create directory "${path}": no such parent`);
    ensureDirectory(parent, mode);
    makeDirectory(path, mode);
  });
}

function makeDirectory(path: string, mode: number): number {
  return unless(["EEXIST"], () => sys.mkdir(path, mode)) ?? 0;
}

/** The names in a directory, without `.` and `..`, in the order of the file system; `undefined` if there is none. @throws {SystemError} */
export function findNames(path: string): string[] | undefined {
  return unless(["ENOENT"], () => listNames(path));
}

/** The names in a directory, without `.` and `..`, in the order of the file system. @throws {SystemError} */
export function listNames(path: string): string[] {
  return listEntries(path).map(({ name }) => name);
}

/** One name in a directory, with what is known without opening it. */
export interface Entry {
  readonly name: string;
  /** Equal for two names of one file. A number if that can hold it exactly: large maps of those are several times faster. */
  readonly inode: number | bigint;
  /** False for directories, links and all else; true where the file system does not say. */
  readonly isFile: boolean;
}

/** What is in a directory, without `.` and `..`, in the order of the file system. @throws {SystemError} */
export function listEntries(path: string): Entry[] {
  return forPurpose(`list directory "${path}"`, () => {
    using directory = descriptor(sys.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
    const entries: Entry[] = [];
    const buffer = new Uint8Array(32 * 1024);
    for (;;) {
      const length = sys.syscall(SYS_getdents64, directory.fd, buffer, buffer.length);
      if (length === 0) return entries;
      readEntries(buffer.subarray(0, length), entries);
    }
  });
}

/** struct linux_dirent64 { u64 d_ino; s64 d_off; u16 d_reclen; u8 d_type; char d_name[]; } */
function readEntries(bytes: Uint8Array, entries: Entry[]): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const decoder = new TextDecoder();
  for (let at = 0; at < bytes.length; at += view.getUint16(at + 16, true)) {
    const name = decoder.decode(bytes.subarray(at + 19, bytes.indexOf(0, at + 19)));
    const type = bytes[at + 18];
    const isFile = type === DT_REG || type === DT_UNKNOWN;
    if (name !== "." && name !== "..") entries.push({ name, inode: readInode(view, at), isFile });
  }
}

function readInode(view: DataView, at: number): number | bigint {
  const high = view.getUint32(at + 4, true);
  return high < 2 ** 21 ? high * 2 ** 32 + view.getUint32(at, true) : view.getBigUint64(at, true);
}

/** What tells one file from another, and its kind. */
export interface FileStatus {
  /** Device and inode: equal for two paths of one file, one namespace, one program. */
  readonly identity: string;
  readonly isFile: boolean;
  readonly isDirectory: boolean;
  readonly isCharacterDevice: boolean;
  /** Permission bits: 0o755. */
  readonly mode: number;
  /** Length in bytes. */
  readonly size: number;
  /** Last change of the content, in nanoseconds since 1970. */
  readonly modified: bigint;
}

/** The status of an open file. @throws {SystemError} @see asm/stat.h: the two architectures differ in the place of st_mode only */
export function statusOf(fd: number): FileStatus {
  const bytes = new Uint8Array(144);
  sys.syscall(SYS_fstat, fd, bytes, 0);
  const view = new DataView(bytes.buffer);
  const mode = view.getUint32(arm ? 16 : 24, true);
  return {
    identity: `${view.getBigUint64(0, true)}:${view.getBigUint64(8, true)}`,
    isFile: (mode & 0o170000) === 0o100000,
    isDirectory: (mode & 0o170000) === 0o040000,
    isCharacterDevice: (mode & 0o170000) === 0o020000,
    mode: mode & 0o7777,
    size: Number(view.getBigInt64(48, true)),
    modified: view.getBigInt64(88, true) * 1_000_000_000n + view.getBigInt64(96, true),
  };
}

/** The status of the file that `path` leads to, links followed, or `undefined` if there is none. @throws {SystemError} */
export function findStatus(path: string): FileStatus | undefined {
  // Opens the place and not the file: that asks for no permission to read, and wakes no device.
  const O_PATH = 0o10000000;
  const place = unless(
    ["ENOENT", "ENOTDIR", "ELOOP"],
    () => forPurpose(`find "${path}"`, () => sys.open(path, O_PATH | O_CLOEXEC, 0)),
  );
  if (place === undefined) return undefined;
  using opened = descriptor(place);
  return statusOf(opened.fd);
}

/** Where a symbolic link points, or `undefined` if `path` is no link or does not exist. @throws {SystemError} */
export function findLink(path: string): string | undefined {
  const buffer = new Uint8Array(4096);
  const length = unless(["ENOENT", "ENOTDIR", "EINVAL"], () => sys.readlink(path, buffer, buffer.length));
  return length === undefined ? undefined : new TextDecoder().decode(buffer.subarray(0, length));
}

/** How a lock is held. */
export interface LockOptions {
  /** Longest wait, in milliseconds. */
  readonly timeoutMs: number;
  /** With others that share it too; else alone. */
  readonly shared?: boolean;
}

/**
 * Takes the BSD lock of `path`, which is created if need be; released when its scope ends or the process dies.
 *
 * @throws {SystemError} with code `EAGAIN` when the time is over
 */
export function lockFile(path: string, { timeoutMs, shared = false }: LockOptions): Disposable {
  const file = descriptor(
    forPurpose(`open lock file "${path}"`, () => sys.open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0o600)),
  );
  try {
    forPurpose(`lock "${path}"`, () => acquire(file.fd, timeoutMs, shared ? LOCK_SH : LOCK_EX));
  } catch (error) {
    file[Symbol.dispose]();
    throw error;
  }
  return file;
}

/** flock(2) knows no time limit, so the wait is a series of tries, one millisecond apart. */
function acquire(fd: number, timeoutMs: number, operation: number): void {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const held = unless(["EAGAIN"], () => sys.flock(fd, operation | LOCK_NB));
    if (held !== undefined) return;
    if (performance.now() > deadline) sys.flock(fd, operation | LOCK_NB);
    pause(1);
  }
}
