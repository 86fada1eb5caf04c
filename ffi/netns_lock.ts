/**
 * Taking turns at a network namespace.
 *
 * The lock is a file of root's. That of the namespace itself would need no file, but every process in there, and of the host's namespace
 * every process of the host, may take it, and keep it for ever.
 *
 * @module
 */
import { inDirectory } from "./sys/directory.ts";
import { ignoreErrors } from "./sys/error.ts";
import { lockOpenFile, lockTemporaryFile } from "./sys/lock.ts";
import { fstat } from "./sys/stat.ts";

const LOCK_DIRECTORY = "/run/cni/lock";
/** Without rights on the directory. */
const UNWRITABLE_ERRORS = ["EROFS", "EACCES", "EPERM", "ENOSPC", "EDQUOT", "ENOTDIR"];
/** Whoever has the lock of the namespace itself need not be one of ours. */
const SHARED_LOCK_TIMEOUT_MS = 1000;

/** What is done by one process at a time in one namespace. */
export type NetnsWork = "routing-tables" | "ruleset";

/** Where the lock is while somebody has it. */
export function netnsLockPath(identity: string, work: NetnsWork): string {
  return `${LOCK_DIRECTORY}/${work}-${identity}`;
}

/**
 * Takes the lock for one kind of work in a namespace; released when its scope ends or the process dies. Where no file can be made for it, as
 * without root's rights, it is that of the namespace itself.
 *
 * @param netns the namespace, open
 * @throws {LockedError} when the time is over
 * @throws {SystemError} `EINTR` if a signal that is held back asks to end
 */
export function lockNetns(
  netns: { readonly fd: number; readonly path: string },
  work: NetnsWork,
  timeoutMs: number,
): Disposable {
  const path = netnsLockPath(fstat(netns.fd).identity, work);
  const lock = ignoreErrors(
    UNWRITABLE_ERRORS,
    () => inDirectory(LOCK_DIRECTORY, 0o700, () => lockTemporaryFile(path, { timeoutMs })),
  );
  if (lock) return lock;
  const sharedTimeoutMs = Math.min(timeoutMs, SHARED_LOCK_TIMEOUT_MS);
  return lockOpenFile(netns.fd, `network namespace "${netns.path}"`, { timeoutMs: sharedTimeoutMs });
}
