/**
 * Who may work at a time: containers side by side, what concerns one container in turn (SPEC §Lifecycle & Ordering), garbage collection
 * alone (SPEC §GC).
 *
 * Who wants the lock that is shared stands in line for it: else those who share it would never let somebody alone.
 *
 * The programs of plugins have the locks of an ADD and of garbage collection as well: one that outlives a runtime that was killed would
 * otherwise go on after the next command, and what it makes would stay, or what it takes be missed. What such a program leaves running,
 * as a server of names, has them too, but is not waited for.
 *
 * @module
 */
import { ignoreErrors, ignoreSystemErrors } from "../ffi/sys/error.ts";
import { inDirectory } from "../ffi/sys/directory.ts";
import { sleep } from "../ffi/sys/poll.ts";
import { LockedError, lockFile, replaceOrphanedLock } from "../ffi/sys/lock.ts";
import { findStat } from "../ffi/sys/stat.ts";
import { lockOrTryAgainLater } from "../plugins/lib/protocol/lock_wait.ts";

/** Longer than any work that still moves, and shorter than an engine waits. */
const LOCK_TIMEOUT_MS = 60_000;
/**
 * So long garbage collection keeps others waiting for one that does not end; then they may overtake it for as long. Whoever waits to start a
 * container is in more of a hurry; but where ADDs that take seconds follow each other, it would never have its turn.
 */
const FIRST_GC_WAIT_MS = 1000;
const LONGEST_GC_WAIT_MS = 8000;

/** So long the programs of a runtime that was killed may go on. */
const ORPHAN_GRACE_MS = 30_000;
/** So long one waits for others before it is looked whether they are what programs left running. */
const RECHECK_INTERVAL_MS = 10_000;

/** How many files the containers share; two that meet in one go in turn, which takes some milliseconds. */
const CONTAINER_LOCK_COUNT = 256n;

/** How one waits for a lock, and has it. */
export interface NodeLockOptions {
  /** Longest wait, in milliseconds. */
  readonly maxWaitMs?: number;
  /** Whether the programs that are started meanwhile have it too, as long as they run if this process is killed. */
  readonly inherited?: boolean;
  /** How old those must be that are taken for left running, in milliseconds. */
  readonly orphanGraceMs?: number;
  /** So long others are kept waiting at first, and at the longest. */
  readonly firstGcWaitMs?: number;
  readonly longestGcWaitMs?: number;
}

/**
 * Until its scope ends, no garbage collection begins, and nothing else is done for this container.
 *
 * @throws {CniError} code 11 if others do not end
 */
export function lockContainer(directory: string, containerId: string, options: NodeLockOptions = {}): Disposable {
  return withLockDirectory(directory, options, (deadline) => {
    using locks = new DisposableStack();
    locks.use(lockInTurn(directory, deadline, (path) => takeLock(path, deadline, { ...options, shared: true })));
    const number = Bun.hash.wyhash(containerId) % CONTAINER_LOCK_COUNT;
    locks.use(takeLock(`${directory}/.container-${number}.lock`, deadline, options));
    return locks.move();
  });
}

/** Until its scope ends, nothing else is attached, checked or detached. @throws {CniError} code 11 if others do not end */
export function lockNode(directory: string, options: NodeLockOptions = {}): Disposable {
  const { firstGcWaitMs: firstMs = FIRST_GC_WAIT_MS, longestGcWaitMs: longestMs = LONGEST_GC_WAIT_MS } = options;
  return withLockDirectory(directory, options, (deadline) => {
    for (let waitMs = firstMs;; waitMs = Math.min(waitMs * 2, longestMs)) {
      try {
        return lockInTurn(
          directory,
          deadline,
          (path) => takeLock(path, Math.min(deadline, performance.now() + waitMs), options),
        );
      } catch (error) {
        if (!(error instanceof LockedError) || performance.now() >= deadline) throw error;
        sleep(waitMs);
      }
    }
  });
}

/** Where no file can be made, nobody attaches anything either: what an ADD is to remember comes first. */
const UNWRITABLE_ERRORS = ["EROFS", "EACCES", "ENOSPC", "EDQUOT"];
const NO_LOCK: Disposable = { [Symbol.dispose]() {} };

function withLockDirectory(
  directory: string,
  { maxWaitMs = LOCK_TIMEOUT_MS }: NodeLockOptions,
  lock: (deadline: number) => Disposable,
): Disposable {
  return lockOrTryAgainLater(() =>
    ignoreErrors(
      UNWRITABLE_ERRORS,
      () => inDirectory(directory, 0o700, () => lock(performance.now() + maxWaitMs)),
    ) ?? NO_LOCK
  );
}

/** Takes the lock that garbage collection has alone, after those who asked for it before. */
function lockInTurn(directory: string, deadline: number, lock: (path: string) => Disposable): Disposable {
  const path = `${directory}/.gc.lock`;
  using _turn = takeTurnLock(`${directory}/.turn.lock`, path, deadline);
  return lock(path);
}

function takeTurnLock(turnPath: string, lockPath: string, deadline: number): Disposable {
  try {
    return takeLock(turnPath, deadline);
  } catch (error) {
    // Who is first in line waits as well, for somebody else.
    const status = error instanceof LockedError && findStat(lockPath);
    throw status ? new LockedError(`"${lockPath}"`, status.identity) : error;
  }
}

/** A lock whose file is not there, and cannot be made, nobody has. */
function takeLock(
  path: string,
  deadline: number,
  options: NodeLockOptions & { readonly shared?: boolean } = {},
): Disposable {
  for (;;) {
    const timeoutMs = Math.min(Math.max(0, deadline - performance.now()), RECHECK_INTERVAL_MS);
    try {
      return ignoreErrors(UNWRITABLE_ERRORS, () => lockFile(path, { ...options, timeoutMs })) ?? NO_LOCK;
    } catch (error) {
      if (!(error instanceof LockedError)) throw error;
      const isReplaced = ignoreSystemErrors(() =>
        replaceOrphanedLock(path, error.identity, options.orphanGraceMs ?? ORPHAN_GRACE_MS)
      );
      if (!isReplaced && performance.now() >= deadline) throw error;
    }
  }
}
