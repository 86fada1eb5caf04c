/**
 * Who may work at a time: containers side by side, what concerns one container in turn (SPEC §Lifecycle & Ordering), garbage collection
 * alone (SPEC §GC).
 *
 * Who wants the lock that is shared stands in line for it: else those who share it would never let somebody alone.
 *
 * The programs of plugins have these locks as well: one that outlives a runtime that was killed would otherwise go on with its ADD after
 * the DEL, and what it makes would stay.
 *
 * @module
 */
import { unless } from "../../ffi/sys/error.ts";
import { ensureDirectory } from "../../ffi/sys/directory.ts";
import { pause } from "../../ffi/sys/file.ts";
import { LockedError, lockFile } from "../../ffi/sys/lock.ts";
import { findStatus } from "../../ffi/sys/status.ts";
import { tryAgainLater } from "../../plugins/kit/busy.ts";

/** Longer than any work that still moves, and shorter than an engine waits. */
const PATIENCE_MS = 60_000;
/**
 * So long garbage collection keeps others waiting for one that does not end; then they may overtake it for as long. No longer, since whoever
 * waits to start a container is in more of a hurry; no shorter, or it would not have its turn where ADDs that take a second follow each other.
 */
const TURN_MS = 2000;

/** How many files the containers share; two that meet in one go in turn, which takes some milliseconds. */
const CONTAINER_LOCKS = 256n;

/**
 * Until its scope ends, no garbage collection begins, and nothing else is done for this container.
 *
 * @throws {CniError} code 11 if others do not end
 */
export function aloneWithContainer(directory: string, containerId: string, patienceMs = PATIENCE_MS): Disposable {
  return locked(directory, patienceMs, (deadline) => {
    using locks = new DisposableStack();
    locks.use(inTurn(directory, deadline, (path) => take(path, deadline, true)));
    const number = Bun.hash.wyhash(containerId) % CONTAINER_LOCKS;
    locks.use(take(`${directory}/.container-${number}.lock`, deadline));
    return locks.move();
  });
}

/** Until its scope ends, nothing else is attached, checked or detached. @throws {CniError} code 11 if others do not end */
export function alone(directory: string, patienceMs = PATIENCE_MS, turnMs = TURN_MS): Disposable {
  return locked(directory, patienceMs, (deadline) => {
    for (;;) {
      try {
        return inTurn(directory, deadline, (path) => take(path, Math.min(deadline, performance.now() + turnMs)));
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

function locked(directory: string, patienceMs: number, lock: (deadline: number) => Disposable): Disposable {
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
function take(path: string, deadline: number, shared = false): Disposable {
  const options = { timeoutMs: Math.max(0, deadline - performance.now()), shared, inherited: true };
  return unless(NOT_TO_BE_MADE, () => lockFile(path, options)) ?? NOTHING;
}
