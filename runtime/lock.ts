/**
 * Containers work side by side, commands for one container in turn (SPEC §Lifecycle & Ordering), GC alone (SPEC §GC).
 *
 * Shared locks queue too, or they starve GC's exclusive lock. Programs inherit the locks of ADD and GC: one that
 * outlives a killed runtime keeps the next command waiting. Daemons that it leaves running do not.
 */
import { ignoreErrors, ignoreSystemErrors } from "../ffi/sys/error.ts";
import { inDirectory } from "../ffi/sys/directory.ts";
import { sleep } from "../ffi/sys/poll.ts";
import { LockedError, lockFile, replaceOrphanedLock } from "../ffi/sys/lock.ts";
import { findStat } from "../ffi/sys/stat.ts";
import { lockOrTryAgainLater } from "../plugins/lib/protocol/lock_wait.ts";

// Longer than any healthy command, shorter than an engine waits.
const LOCK_TIMEOUT_MS = 60_000;
/**
 * While GC waits, it blocks others for this time, then lets them pass for as long. The time doubles: slow ADDs must not
 * starve GC.
 */
const FIRST_GC_WAIT_MS = 1000;
const LONGEST_GC_WAIT_MS = 8000;

// Programs of a killed runtime may go on so long.
const ORPHAN_GRACE_MS = 30_000;
const RECHECK_INTERVAL_MS = 10_000;

// Containers that share a lock file work in turn.
const CONTAINER_LOCK_COUNT = 256n;

interface NodeLockOptions {
  readonly maxWaitMs?: number;
  /** Programs that are started meanwhile hold it too. */
  readonly inherited?: boolean;
  /** Older orphans count as left running. */
  readonly orphanGraceMs?: number;
  /** An ADD refuses such a directory, a DEL goes on, see {@linkcode lockFile}. */
  readonly onDirectory?: (message: string) => void;
  readonly firstGcWaitMs?: number;
  readonly longestGcWaitMs?: number;
}

/** Excludes GC, and other commands for this container. @throws {CniError} code 11 if others do not end */
export function lockContainer(directory: string, containerId: string, options: NodeLockOptions = {}): Disposable {
  return withLockDirectory(directory, options, (deadline) => {
    using locks = new DisposableStack();
    const lockShared = (path: string) => takeLock(path, deadline, { ...options, shared: true });
    locks.use(lockInTurn(directory, deadline, options, lockShared));
    const number = Bun.hash.wyhash(containerId) % CONTAINER_LOCK_COUNT;
    locks.use(takeLock(`${directory}/.container-${number}.lock`, deadline, options));
    return locks.move();
  });
}

/** Excludes all other commands. @throws {CniError} code 11 if others do not end */
export function lockNode(directory: string, options: NodeLockOptions = {}): Disposable {
  const { firstGcWaitMs: firstMs = FIRST_GC_WAIT_MS, longestGcWaitMs: longestMs = LONGEST_GC_WAIT_MS } = options;
  return withLockDirectory(directory, options, (deadline) => {
    for (let waitMs = firstMs;; waitMs = Math.min(waitMs * 2, longestMs)) {
      try {
        return lockInTurn(
          directory,
          deadline,
          options,
          (path) => takeLock(path, Math.min(deadline, performance.now() + waitMs), options),
        );
      } catch (error) {
        if (!(error instanceof LockedError) || performance.now() >= deadline) throw error;
        sleep(waitMs);
      }
    }
  });
}

// Where no file can be made, no ADD gets through: it writes its entry first.
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

function lockInTurn(
  directory: string,
  deadline: number,
  options: NodeLockOptions,
  lock: (path: string) => Disposable,
): Disposable {
  const path = `${directory}/.gc.lock`;
  using _turn = takeTurnLock(`${directory}/.turn.lock`, path, deadline, options);
  return lock(path);
}

function takeTurnLock(
  turnPath: string,
  lockPath: string,
  deadline: number,
  { onDirectory }: NodeLockOptions,
): Disposable {
  try {
    return takeLock(turnPath, deadline, onDirectory && { onDirectory });
  } catch (error) {
    // The first in the queue waits too: name the one that it waits for.
    const status = error instanceof LockedError && findStat(lockPath);
    throw status ? new LockedError(`"${lockPath}"`, status.identity) : error;
  }
}

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
