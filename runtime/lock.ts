/**
 * Locks: containers work side by side, commands for one container in turn (SPEC §Lifecycle & Ordering), GC alone (SPEC §GC).
 *
 * Shared locks queue too, or they starve GC's exclusive lock. Plugin programs inherit the locks of ADD and GC: one that outlives a killed
 * runtime would otherwise work beside the next command. Daemons that such a program leaves running are not waited for.
 */
import { ignoreErrors, ignoreSystemErrors } from "../ffi/sys/error.ts";
import { inDirectory } from "../ffi/sys/directory.ts";
import { sleep } from "../ffi/sys/poll.ts";
import { LockedError, lockFile, replaceOrphanedLock } from "../ffi/sys/lock.ts";
import { findStat } from "../ffi/sys/stat.ts";
import { lockOrTryAgainLater } from "../plugins/lib/protocol/lock_wait.ts";

/** Longer than any healthy command, shorter than an engine waits. */
const LOCK_TIMEOUT_MS = 60_000;
/** So long GC blocks others while it waits, then lets them overtake for as long. It doubles, so that slow ADDs do not starve GC. */
const FIRST_GC_WAIT_MS = 1000;
const LONGEST_GC_WAIT_MS = 8000;

/** So long the programs of a killed runtime may go on. */
const ORPHAN_GRACE_MS = 30_000;
/** How often the holders of a lock are checked for orphans. */
const RECHECK_INTERVAL_MS = 10_000;

/** Containers share so many files; two that share one work in turn. */
const CONTAINER_LOCK_COUNT = 256n;

export interface NodeLockOptions {
  /** Longest wait, in milliseconds. */
  readonly maxWaitMs?: number;
  /** Whether programs that are started meanwhile hold it too. */
  readonly inherited?: boolean;
  /** From this age on, in milliseconds, orphans count as left running. */
  readonly orphanGraceMs?: number;
  /** How long GC blocks others at first, and at most. */
  readonly firstGcWaitMs?: number;
  readonly longestGcWaitMs?: number;
}

/** Until its scope ends, no GC begins and no other command works on this container. @throws {CniError} code 11 if others do not end */
export function lockContainer(directory: string, containerId: string, options: NodeLockOptions = {}): Disposable {
  return withLockDirectory(directory, options, (deadline) => {
    using locks = new DisposableStack();
    locks.use(lockInTurn(directory, deadline, (path) => takeLock(path, deadline, { ...options, shared: true })));
    const number = Bun.hash.wyhash(containerId) % CONTAINER_LOCK_COUNT;
    locks.use(takeLock(`${directory}/.container-${number}.lock`, deadline, options));
    return locks.move();
  });
}

/** Until its scope ends, no other command works on the node. @throws {CniError} code 11 if others do not end */
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

/** Where no file can be made, no ADD gets through: it writes its entry first. */
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

/** Takes GC's lock after those that queue for it. */
function lockInTurn(directory: string, deadline: number, lock: (path: string) => Disposable): Disposable {
  const path = `${directory}/.gc.lock`;
  using _turn = takeTurnLock(`${directory}/.turn.lock`, path, deadline);
  return lock(path);
}

function takeTurnLock(turnPath: string, lockPath: string, deadline: number): Disposable {
  try {
    return takeLock(turnPath, deadline);
  } catch (error) {
    // The first in the queue waits too: name the one that it waits for.
    const status = error instanceof LockedError && findStat(lockPath);
    throw status ? new LockedError(`"${lockPath}"`, status.identity) : error;
  }
}

/** If the lock file cannot be made, nobody holds it. */
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
