/**
 * Locks for work in a network namespace. They are files of root's: any process inside could hold the namespace's own
 * lock forever.
 *
 * @module
 */
import { inDirectory } from "../sys/directory.ts";
import { ignoreErrors } from "../sys/error.ts";
import { lockFile, lockOpenFile, lockTemporaryFile } from "../sys/lock.ts";
import { fstat } from "../sys/stat.ts";

const LOCK_DIRECTORY = "/run/cni/lock";
const UNWRITABLE_ERRORS = ["EROFS", "EACCES", "EPERM", "ENOSPC", "EDQUOT", "ENOTDIR"];
/** The holder of the namespace's own lock need not be ours. */
const SHARED_LOCK_TIMEOUT_MS = 1000;

export type NetnsWork = "routing-tables" | "ruleset";

export function netnsLockPath(identity: string, work: NetnsWork): string {
  return `${LOCK_DIRECTORY}/${work}-${identity}`;
}

/**
 * Lets one process at a time do this work. Where no file can be made, it locks the namespace itself. The ruleset's file
 * stays: hundreds may wait for it, and a file that goes would scatter their queue.
 */
export function lockNetns(
  netns: { readonly fd: number; readonly path: string },
  work: NetnsWork,
  timeoutMs: number,
): Disposable {
  const path = netnsLockPath(fstat(netns.fd).identity, work);
  const take = work === "ruleset" ? lockFile : lockTemporaryFile;
  const lock = ignoreErrors(
    UNWRITABLE_ERRORS,
    () => inDirectory(LOCK_DIRECTORY, 0o700, () => take(path, { timeoutMs })),
  );
  if (lock) return lock;
  const sharedTimeoutMs = Math.min(timeoutMs, SHARED_LOCK_TIMEOUT_MS);
  return lockOpenFile(netns.fd, `network namespace "${netns.path}"`, { timeoutMs: sharedTimeoutMs });
}
