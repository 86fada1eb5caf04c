import { ignoreSystemErrors } from "../ffi/sys/error.ts";
import { readText } from "../ffi/sys/file.ts";
import { findStat } from "../ffi/sys/stat.ts";
import type { PeerCredentials } from "../ffi/sys/unix_socket.ts";

/** Where these are the same, so are the meanings of paths, of root and of process numbers. */
const SHARED_FILES = ["ns/mnt", "ns/user", "ns/pid", "root"];

// linux/capability.h
const CAP_NET_ADMIN = 12;
const CAP_SYS_ADMIN = 21;

export function namespacesOf(pid: number | "self"): string {
  return SHARED_FILES.map((name) => ignoreSystemErrors(() => findStat(`/proc/${pid}/${name}`)?.identity)).join();
}

/**
 * A caller is allowed what it could do itself: it is root, has the capabilities, and is where the server is. Returns
 * `undefined` if it has ended.
 */
export function isAllowed({ pid, uid, hasEnded }: PeerCredentials, serverNamespaces: string): boolean | undefined {
  // 0: the server does not see its number.
  if (uid !== 0 || pid === 0) return false;
  const status = ignoreSystemErrors(() => readText(`/proc/${pid}/status`));
  if (status === undefined || /^State:\tZ/m.test(status)) return undefined;
  if (!hasCapabilities(status) || namespacesOf(pid) !== serverNamespaces) return false;
  // Another process may have its number by now.
  return hasEnded() ? undefined : true;
}

function hasCapabilities(status: string): boolean {
  const [, digits = "0"] = /^CapEff:\t[0-9a-f]*([0-9a-f]{8})$/m.exec(status) ?? [];
  const capabilities = parseInt(digits, 16);
  return [CAP_NET_ADMIN, CAP_SYS_ADMIN].every((capability) => capabilities >> capability & 1);
}
