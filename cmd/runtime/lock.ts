/**
 * Who may work at a time: containers side by side, what concerns one container in turn (SPEC §Lifecycle & Ordering), garbage collection
 * alone (SPEC §GC), the removal of an ended attachment once.
 *
 * @module
 */
import { SystemError } from "../../ffi/sys/error.ts";
import { ensureDirectory } from "../../ffi/sys/directory.ts";
import { lockFile } from "../../ffi/sys/lock.ts";
import { CniError, Code } from "../../plugins/spec/error.ts";

/** Longer than any work that still moves, and shorter than an engine waits. */
const PATIENCE_MS = 60_000;

/** How many files the containers share; two that meet in one go in turn, which takes some milliseconds. */
const CONTAINER_LOCKS = 256n;

/**
 * Until its scope ends, no garbage collection begins, and nothing else is done for this container.
 *
 * @throws {CniError} code 11 if others do not end
 */
export function aloneWithContainer(directory: string, containerId: string): Disposable {
  using locks = new DisposableStack();
  locks.use(lock(`${directory}/.gc.lock`, "garbage collection", true));
  const number = Bun.hash.wyhash(containerId) % CONTAINER_LOCKS;
  locks.use(lock(`${directory}/.container-${number}.lock`, "an ADD, CHECK or DEL for this container", false));
  return locks.move();
}

/** Until its scope ends, nothing else is attached, checked or detached. @throws {CniError} code 11 if others do not end */
export function alone(directory: string): Disposable {
  return lock(`${directory}/.gc.lock`, "an ADD, CHECK or DEL", false);
}

/** Until its scope ends, nobody else removes an attachment that ended. @throws {CniError} code 11 if somebody does not end */
export function aloneWithEnded(directory: string): Disposable {
  return lock(`${directory}/.ended.lock`, "the removal of an ended attachment", false);
}

function lock(path: string, holder: string, shared: boolean): Disposable {
  try {
    ensureDirectory(path.slice(0, path.lastIndexOf("/")), 0o700);
    return lockFile(path, { timeoutMs: PATIENCE_MS, shared });
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    // Where nothing can be written, nobody attaches anything either.
    if (["EROFS", "EACCES"].includes(error.code)) return { [Symbol.dispose]: () => {} };
    if (error.code !== "EAGAIN") throw error;
    throw new CniError(Code.TryAgainLater, `Cannot go on: ${holder} of another process has not ended`, {
      details: `it holds "${path}"`,
      cause: error,
    });
  }
}
