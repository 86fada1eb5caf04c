/**
 * The lock on the reservations of a network, shared with every other program that follows the reference plugin.
 *
 * @module
 */
import { SystemError } from "../../ffi/sys/error.ts";
import { findText } from "../../ffi/sys/file.ts";
import { lockFile } from "../../ffi/sys/lock.ts";
import { findStatus } from "../../ffi/sys/status.ts";
import { CniError, Code } from "../spec/error.ts";

/** Waits in line for the lock `path`, for at most `timeoutMs`. @throws {CniError} code 11 naming who holds it */
export function acquireLock(path: string, timeoutMs: number): Disposable {
  try {
    return lockFile(path, { timeoutMs });
  } catch (error) {
    if (!(error instanceof SystemError && error.code === "EAGAIN")) throw error;
    const holder = findLockHolder(path) ?? "another process, which /proc/locks does not show,";
    throw new CniError(
      Code.TryAgainLater,
      `Cannot lock "${path}" within ${timeoutMs} ms: ${holder} holds it`,
      { details: "one ADD or DEL needs about a millisecond: if that process hangs, end it", cause: error },
    );
  }
}

/** `process 4711 ("host-local")`; processes of other PID namespaces are not to be seen. @see proc_locks(5) */
function findLockHolder(path: string): string | undefined {
  const inode = findStatus(path)?.identity.split(":")[1];
  for (const line of findText("/proc/locks")?.split("\n") ?? []) {
    // "1: FLOCK  ADVISORY  WRITE 4711 fe:00:264194 0 EOF"; those who wait have "->" in the second place.
    const [, kind, , , pid, file] = line.split(/\s+/);
    if (kind !== "FLOCK" || file?.split(":")[2] !== inode || !(Number(pid) > 0)) continue;
    const command = findText(`/proc/${pid}/comm`)?.trim();
    return `process ${pid}${command ? ` (${JSON.stringify(command)})` : ""}`;
  }
  return undefined;
}
