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
import { unless, unlessFailed } from "../ffi/sys/error.ts";
import { ensureDirectory } from "../ffi/sys/directory.ts";
import { pause } from "../ffi/sys/file.ts";
import { LockedError, lockFile, replaceLeftLock } from "../ffi/sys/lock.ts";
import { findStatus } from "../ffi/sys/stat.ts";
import { tryAgainLater } from "../plugins/lib/protocol/lock_wait.ts";

/** Longer than any work that still moves, and shorter than an engine waits. */
const PATIENCE_MS = 60_000;
/**
 * So long garbage collection keeps others waiting for one that does not end; then they may overtake it for as long. Whoever waits to start a
 * container is in more of a hurry; but where ADDs that take seconds follow each other, it would never have its turn.
 */
const FIRST_TURN_MS = 1000;
const LONGEST_TURN_MS = 8000;

/** So long the programs of a runtime that was killed may go on. */
const HEIRS_MS = 30_000;
/** So long one waits for others before it is looked whether they are what programs left running. */
const STEP_MS = 10_000;

/** How many files the containers share; two that meet in one go in turn, which takes some milliseconds. */
const CONTAINER_LOCKS = 256n;

/** How one waits for a lock, and has it. */
export interface Aloneness {
  /** Longest wait, in milliseconds. */
  readonly patienceMs?: number;
  /** Whether the programs that are started meanwhile have it too, as long as they run if this process is killed. */
  readonly inherited?: boolean;
  /** How old those must be that are taken for left running, in milliseconds. */
  readonly heirsMs?: number;
  /** So long others are kept waiting at first, and at the longest. */
  readonly turnMs?: number;
  readonly longestTurnMs?: number;
}

/**
 * Until its scope ends, no garbage collection begins, and nothing else is done for this container.
 *
 * @throws {CniError} code 11 if others do not end
 */
export function aloneWithContainer(directory: string, containerId: string, how: Aloneness = {}): Disposable {
  return locked(directory, how, (deadline) => {
    using locks = new DisposableStack();
    locks.use(inTurn(directory, deadline, (path) => take(path, deadline, { ...how, shared: true })));
    const number = Bun.hash.wyhash(containerId) % CONTAINER_LOCKS;
    locks.use(take(`${directory}/.container-${number}.lock`, deadline, how));
    return locks.move();
  });
}

/** Until its scope ends, nothing else is attached, checked or detached. @throws {CniError} code 11 if others do not end */
export function alone(directory: string, how: Aloneness = {}): Disposable {
  const { turnMs: first = FIRST_TURN_MS, longestTurnMs: longest = LONGEST_TURN_MS } = how;
  return locked(directory, how, (deadline) => {
    for (let turnMs = first;; turnMs = Math.min(turnMs * 2, longest)) {
      try {
        return inTurn(directory, deadline, (path) => take(path, Math.min(deadline, performance.now() + turnMs), how));
      } catch (error) {
        if (!(error instanceof LockedError) || performance.now() >= deadline) throw error;
        pause(turnMs);
      }
    }
  });
}

/** Where no file can be made, nobody attaches anything either: what an ADD is to remember comes first. */
const NOT_TO_BE_MADE = ["EROFS", "EACCES", "ENOSPC", "EDQUOT"];
const NOTHING: Disposable = { [Symbol.dispose]() {} };

function locked(
  directory: string,
  { patienceMs = PATIENCE_MS }: Aloneness,
  lock: (deadline: number) => Disposable,
): Disposable {
  const isThere = unless(NOT_TO_BE_MADE, () => {
    ensureDirectory(directory, 0o700);
    return true;
  });
  return isThere ? tryAgainLater(() => lock(performance.now() + patienceMs)) : NOTHING;
}

/** Takes the lock that garbage collection has alone, after those who asked for it before. */
function inTurn(directory: string, deadline: number, lock: (path: string) => Disposable): Disposable {
  const path = `${directory}/.gc.lock`;
  using _turn = awaitTurn(`${directory}/.turn.lock`, path, deadline);
  return lock(path);
}

function awaitTurn(turn: string, path: string, deadline: number): Disposable {
  try {
    return take(turn, deadline);
  } catch (error) {
    // Who is first in line waits as well, for somebody else.
    const status = error instanceof LockedError && findStatus(path);
    throw status ? new LockedError(`"${path}"`, status.identity) : error;
  }
}

/** A lock whose file is not there, and cannot be made, nobody has. */
function take(path: string, deadline: number, how: Aloneness & { readonly shared?: boolean } = {}): Disposable {
  for (;;) {
    const timeoutMs = Math.min(Math.max(0, deadline - performance.now()), STEP_MS);
    try {
      return unless(NOT_TO_BE_MADE, () => lockFile(path, { ...how, timeoutMs })) ?? NOTHING;
    } catch (error) {
      if (!(error instanceof LockedError)) throw error;
      const isNew = unlessFailed(() => replaceLeftLock(path, error.identity, how.heirsMs ?? HEIRS_MS));
      if (!isNew && performance.now() >= deadline) throw error;
    }
  }
}
