/**
 * Locks between processes, held by a file and given up at the latest when the process ends.
 *
 * Who waits stands in the kernel's queue, which lets one go on after the other, and costs nothing while it waits.
 *
 * @see flock(2)
 * @module
 */
import { EAGAIN, EINTR } from "./errno.ts";
import { ignoreErrors, ignoreSystemErrors, SystemError, withPurpose } from "./error.ts";
import { type Descriptor, descriptor, openFile, removeFile } from "./file.ts";
import { sleep } from "./poll.ts";
import { sys } from "./libc.ts";
import { takePendingSignal } from "./signals.ts";
import { findStat, findSymlinkTarget, fstat } from "./stat.ts";
import { O_CLOEXEC, O_CREAT, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } from "./uapi.ts";

const LOCK_SH = 1;
const LOCK_EX = 2;
const LOCK_NB = 4;
const LOCK_UN = 8;

/** For a few calls. */
const REPLACE_TIMEOUT_MS = 1000;

/** How a lock is held. */
export interface FileLockOptions {
  /** Longest wait, in milliseconds. */
  readonly timeoutMs: number;
  /** With others that share it too; else alone. */
  readonly shared?: boolean;
  /** Whether programs that are started meanwhile have it as well: until its scope ends, or until they do if the process is killed before. */
  readonly inherited?: boolean;
}

/** Others held a lock for longer than somebody wanted to wait; its code is `EAGAIN`, its message names them. */
export class LockedError extends SystemError {
  override readonly name: string = "LockedError";
  /** What can be done about it. */
  readonly advice: string;
  /** That of the file, see {@linkcode FileStat.identity}. */
  readonly identity: string;

  /** `what` is locked: `"/run/lock"`. */
  constructor(what: string, identity: string) {
    super("flock", EAGAIN);
    this.identity = identity;
    const { description, advice } = lockHolderModule().describeLockHolders(identity);
    this.message = `Cannot lock ${what}: it is held by ${description}`;
    this.advice = advice;
  }
}

/**
 * Takes the BSD lock of `path`, which is created if need be; released when its scope ends or the process dies. A link in its place is not
 * followed, since what it leads to would be created, but gives way to the file; the writer of a pipe is not waited for.
 *
 * @throws {LockedError} when the time is over
 * @throws {SystemError} `EINTR` if a signal that is held back asks to end, and if the file cannot be opened
 */
export function lockFile(path: string, options: FileLockOptions): Disposable {
  const file = ignoreErrors(["ELOOP"], () => openLock(path, options)) ?? openReplacingSymlink(path, options);
  try {
    acquire(file.fd, `"${path}"`, options);
  } catch (error) {
    file[Symbol.dispose]();
    throw error;
  }
  return options.inherited ? releaseAndClose(file) : file;
}

/**
 * The same with a file that is there only as long as somebody has its lock or waits for it.
 *
 * @throws as {@linkcode lockFile}
 */
export function lockTemporaryFile(path: string, options: FileLockOptions): Disposable {
  const deadline = performance.now() + options.timeoutMs;
  for (;;) {
    using resources = new DisposableStack();
    const file = resources.use(openLock(path, options));
    acquire(file.fd, `"${path}"`, { ...options, timeoutMs: deadline - performance.now() });
    // Who had it before has removed the file that was waited for.
    if (findStat(path)?.identity !== fstat(file.fd).identity) continue;
    resources.defer(() => void removeFile(path));
    return resources.move();
  }
}

/**
 * Puts a new file in the place of one that nobody has locked but programs that were left running: whoever took the lock was killed, and they
 * have run for longer than `ms`. One that was in the line for the old file does not get the new one, and has to ask again.
 *
 * @returns true if there is a new file, by whomever
 * @throws {SystemError}
 */
export function replaceOrphanedLock(path: string, identity: string, minAgeMs: number): boolean {
  using directory = openFile(path.slice(0, path.lastIndexOf("/") + 1));
  // One at a time: who is late would remove the file that another process has put there and locked.
  using _ = lockOpenFile(directory.fd, `"${path}"`, { timeoutMs: REPLACE_TIMEOUT_MS });
  if (findStat(path)?.identity !== identity) return true;
  if (!lockHolderModule().isHeldByOrphansOnly(identity, minAgeMs)) return false;
  removeFile(path);
  return true;
}

/** To close it is not enough where others have it open. */
function releaseAndClose(file: Descriptor): Disposable {
  return {
    [Symbol.dispose]() {
      using _ = file;
      release(file.fd);
    },
  };
}

function openLock(path: string, { inherited = false }: FileLockOptions): Descriptor {
  const flags = O_RDONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | (inherited ? 0 : O_CLOEXEC);
  return descriptor(withPurpose(`open lock file "${path}"`, () => sys.open(path, flags, 0o600)));
}

/** Whoever finds a link removes it, one at a time: who is late would remove the file that another process has put there and locked. */
function openReplacingSymlink(path: string, options: FileLockOptions): Descriptor {
  const name = path.slice(0, path.lastIndexOf("/") + 1);
  using directory = openFile(name);
  using _ = lockOpenFile(directory.fd, `"${name}"`, { ...options, shared: false });
  if (findSymlinkTarget(path) !== undefined) removeFile(path);
  return openLock(path, options);
}

/** Takes the lock of a file that is open as `fd`, in the words of `what`; released when its scope ends. @throws as {@linkcode lockFile} */
export function lockOpenFile(fd: number, what: string, options: FileLockOptions): Disposable {
  acquire(fd, what, options);
  return { [Symbol.dispose]: () => release(fd) };
}

/** Nothing is lost where that fails: the lock goes with the descriptor, at the latest when the process ends. */
function release(fd: number): void {
  // Twice for what injects errors: the kernel does not wait here.
  ignoreSystemErrors(() => tryFlock(fd, LOCK_UN) || tryFlock(fd, LOCK_UN));
}

function acquire(fd: number, what: string, { timeoutMs, shared = false }: FileLockOptions): void {
  const operation = shared ? LOCK_SH : LOCK_EX;
  const isHeld = withPurpose(
    `lock ${what}`,
    () => tryFlock(fd, operation | LOCK_NB) || waitForLock(fd, operation, timeoutMs),
  );
  if (!isHeld) throw new LockedError(what, fstat(fd).identity);
}

/** False if others have it, or a signal came. */
function tryFlock(fd: number, operation: number): boolean {
  return ignoreErrors(["EAGAIN", "EINTR"], () => sys.flock(fd, operation)) !== undefined;
}

/** False when the time is over. */
function waitForLock(fd: number, operation: number, timeoutMs: number): boolean {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    if (takePendingSignal()) throw new SystemError("flock", EINTR);
    if (flockUntil(fd, operation, deadline)) return true;
    if (performance.now() >= deadline) return false;
  }
}

/** In the kernel's queue until the lock is there, the time is over or a signal came. */
function flockUntil(fd: number, operation: number, deadline: number): boolean {
  using limit = ignoreErrors(NO_TIMER_CODES, () => timeLimitModule().interruptAfter(deadline - performance.now()));
  if (limit) return !limit.isTerminationRequested() && tryFlock(fd, operation);
  sleep(1);
  return tryFlock(fd, operation | LOCK_NB);
}

/** The caller may have used up what it may have, or be forbidden to: then it has to ask again and again. */
const NO_TIMER_CODES = ["EAGAIN", "ENOMEM", "EPERM", "ENOSYS"];

/** Needed where the lock is held only: `require` runs these here and not at start-up. */
function timeLimitModule(): typeof import("./time_limit.ts") {
  return require("./time_limit.ts");
}

/** See {@linkcode timeLimitModule}. */
function lockHolderModule(): typeof import("./lock_holder.ts") {
  return require("./lock_holder.ts");
}
