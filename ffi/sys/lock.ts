/**
 * Locks between processes, held through a file until the process ends at the latest. Waiters queue in the kernel.
 *
 * @module
 */
import { EAGAIN, EINTR } from "./errno.ts";
import { ignoreErrors, ignoreSystemErrors, SystemError, withPurpose } from "./error.ts";
import { explainDirectory, isAboutDirectory } from "./directory_in_place.ts";
import { type Descriptor, descriptor, openFile, removeFile } from "./file.ts";
import { sleep } from "./poll.ts";
import { sys } from "./libc.ts";
import { takePendingSignal } from "./signals.ts";
import { findStat, fstat } from "./stat.ts";
import { O_CLOEXEC, O_CREAT, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } from "./uapi.ts";

const LOCK_SH = 1;
const LOCK_EX = 2;
const LOCK_NB = 4;
const LOCK_UN = 8;

const REPLACE_TIMEOUT_MS = 1000;

export interface FileLockOptions {
  readonly timeoutMs: number;
  readonly shared?: boolean;
  /** Child programs hold it too: until its scope ends or, if this process is killed, until they end. */
  readonly inherited?: boolean;
  /** Told of a directory in the file's place, whose own lock is taken then. Default: that is an error. */
  readonly onDirectory?: (message: string) => void;
}

/** Others held a lock for too long. The code is `EAGAIN`. */
export class LockedError extends SystemError {
  override readonly name: string = "LockedError";
  readonly advice: string;
  readonly identity: string;

  /** @param what is locked: `"/run/lock"` */
  constructor(what: string, identity: string) {
    super("flock", EAGAIN);
    this.identity = identity;
    const { description, advice } = lockHolderModule().describeLockHolders(identity);
    this.message = `Cannot lock ${what}: it is held by ${description}`;
    this.advice = advice;
  }
}

/**
 * Takes the BSD lock of `path` until the scope or the process ends. Creates the file; replaces what cannot be opened, as
 * a symbolic link, since opening would create its target.
 *
 * @throws {LockedError} after the timeout
 * @throws {SystemError} `EINTR` if a blocked signal asks to end
 */
export function lockFile(path: string, options: FileLockOptions): Disposable {
  const file = openLock(path, options);
  try {
    acquire(file.fd, `"${path}"`, options);
  } catch (error) {
    file[Symbol.dispose]();
    throw error;
  }
  return options.inherited ? releaseAndClose(file) : file;
}

/** Removes the file afterwards, otherwise as {@linkcode lockFile}. */
export function lockTemporaryFile(path: string, options: FileLockOptions): Disposable {
  const deadline = performance.now() + options.timeoutMs;
  for (;;) {
    using resources = new DisposableStack();
    const file = resources.use(openLock(path, options));
    acquire(file.fd, `"${path}"`, { ...options, timeoutMs: deadline - performance.now() });
    // The previous holder removed this file.
    if (findStat(path)?.identity !== fstat(file.fd).identity) continue;
    resources.defer(() => void removeFile(path));
    return resources.move();
  }
}

/**
 * Replaces the file of a lock that only orphans hold, see isHeldByOrphansOnly(). Waiters for the old file must ask
 * again.
 *
 * @returns whether there is a new file
 */
export function replaceOrphanedLock(path: string, identity: string, minAgeMs: number): boolean {
  using directory = openFile(path.slice(0, path.lastIndexOf("/") + 1));
  // One at a time: a late one would remove the file that another made and locked.
  using _ = lockOpenFile(directory.fd, `"${path}"`, { timeoutMs: REPLACE_TIMEOUT_MS });
  if (findStat(path)?.identity !== identity) return true;
  if (!lockHolderModule().isHeldByOrphansOnly(identity, minAgeMs)) return false;
  removeFile(path);
  return true;
}

/** Closing is not enough: children have the file open. */
function releaseAndClose(file: Descriptor): Disposable {
  return {
    [Symbol.dispose]() {
      using _ = file;
      release(file.fd);
    },
  };
}

// A symbolic link, a socket, and a device without a driver give these.
const UNUSABLE_CODES = ["ELOOP", "ENXIO", "ENODEV"];

function openLock(path: string, options: FileLockOptions): Descriptor {
  const flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | (options.inherited ? 0 : O_CLOEXEC);
  const open = () =>
    withPurpose(`open lock file "${path}"`, () => explainDirectory(() => sys.open(path, flags | O_CREAT, 0o600)));
  try {
    return descriptor(ignoreErrors(UNUSABLE_CODES, open) ?? replaceUnusable(path, options, open));
  } catch (error) {
    if (!(options.onDirectory && isAboutDirectory(error))) throw error;
    options.onDirectory(error.message);
    return descriptor(sys.open(path, flags, 0));
  }
}

/** Needs the directory's lock, see {@linkcode replaceOrphanedLock}. */
function replaceUnusable(path: string, options: FileLockOptions, open: () => number): number {
  const name = path.slice(0, path.lastIndexOf("/") + 1);
  using directory = openFile(name);
  using _ = lockOpenFile(directory.fd, `"${name}"`, { ...options, shared: false });
  if (findStat(path, false)?.isFile === false) removeFile(path);
  return open();
}

export function lockOpenFile(fd: number, what: string, options: FileLockOptions): Disposable {
  acquire(fd, what, options);
  return { [Symbol.dispose]: () => release(fd) };
}

/** Failures are harmless: the lock ends with the descriptor. */
function release(fd: number): void {
  // Twice, for tests that inject errors.
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

/** Returns false if others have it or a signal came. */
function tryFlock(fd: number, operation: number): boolean {
  return ignoreErrors(["EAGAIN", "EINTR"], () => sys.flock(fd, operation)) !== undefined;
}

function waitForLock(fd: number, operation: number, timeoutMs: number): boolean {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    if (takePendingSignal()) throw new SystemError("flock", EINTR);
    if (flockUntil(fd, operation, deadline)) return true;
    if (performance.now() >= deadline) return false;
  }
}

function flockUntil(fd: number, operation: number, deadline: number): boolean {
  using limit = ignoreErrors(NO_TIMER_CODES, () => timeLimitModule().interruptAfter(deadline - performance.now()));
  if (limit) return !limit.isTerminationRequested() && tryFlock(fd, operation);
  sleep(1);
  return tryFlock(fd, operation | LOCK_NB);
}

// Without timers, it polls.
const NO_TIMER_CODES = ["EAGAIN", "ENOMEM", "EPERM", "ENOSYS"];

/** Only contended locks need these modules. */
function timeLimitModule(): typeof import("./time_limit.ts") {
  return require("./time_limit.ts");
}

function lockHolderModule(): typeof import("./lock_holder.ts") {
  return require("./lock_holder.ts");
}
