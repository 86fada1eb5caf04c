/**
 * Locks between processes, held by a file and given up at the latest when the process ends.
 *
 * @see flock(2)
 * @module
 */
import { forPurpose, SystemError, unless } from "./error.ts";
import { descriptor, pause } from "./file.ts";
import { sys } from "./libc.ts";
import { takeHeldSignal } from "./signals.ts";

// asm-generic/fcntl.h; O_NOFOLLOW is another on arm64.
const O_RDONLY = 0;
const O_CREAT = 0o100;
const O_NONBLOCK = 0o4000;
const O_NOFOLLOW = process.arch === "arm64" ? 0o100000 : 0o400000;
const O_CLOEXEC = 0o2000000;
const EINTR = 4;
const LOCK_SH = 1;
const LOCK_EX = 2;
const LOCK_NB = 4;
const LOCK_UN = 8;

/** How a lock is held. */
export interface LockOptions {
  /** Longest wait, in milliseconds. */
  readonly timeoutMs: number;
  /** With others that share it too; else alone. */
  readonly shared?: boolean;
}

/**
 * Takes the BSD lock of `path`, which is created if need be; released when its scope ends or the process dies. A link in its place is not
 * followed, since what it leads to would be created, and the writer of a pipe is not waited for.
 *
 * @throws {SystemError} with code `EAGAIN` when the time is over, and `EINTR` if a signal that is held back asks to end
 */
export function lockFile(path: string, { timeoutMs, shared = false }: LockOptions): Disposable {
  const flags = O_RDONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const file = descriptor(forPurpose(`open lock file "${path}"`, () => sys.open(path, flags, 0o600)));
  try {
    forPurpose(`lock "${path}"`, () => acquire(file.fd, timeoutMs, shared ? LOCK_SH : LOCK_EX));
  } catch (error) {
    file[Symbol.dispose]();
    throw error;
  }
  return file;
}

/** Takes the lock of a file that is open as `fd`, in the words of `what`; released when its scope ends. @throws {SystemError} as {@linkcode lockFile} */
export function lockOpenFile(fd: number, what: string, { timeoutMs, shared = false }: LockOptions): Disposable {
  forPurpose(`lock ${what}`, () => acquire(fd, timeoutMs, shared ? LOCK_SH : LOCK_EX));
  return { [Symbol.dispose]: () => void sys.flock(fd, LOCK_UN) };
}

/** flock(2) knows no time limit, so the wait is a series of tries, one millisecond apart. It ends early where somebody asks for that. */
function acquire(fd: number, timeoutMs: number, operation: number): void {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const held = unless(["EAGAIN"], () => sys.flock(fd, operation | LOCK_NB));
    if (held !== undefined) return;
    if (takeHeldSignal()) throw new SystemError("flock", EINTR);
    if (performance.now() > deadline) sys.flock(fd, operation | LOCK_NB);
    pause(1);
  }
}
