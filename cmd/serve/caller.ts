/** Who may use the server: callers that could do the same themselves. @module */
import { ignoreSystemErrors } from "../../ffi/sys/error.ts";
import { readText } from "../../ffi/sys/file.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import type { PeerCredentials } from "../../ffi/sys/unix_socket.ts";

/** Where these are the same, so are the meanings of paths, of root and of process numbers. */
const SHARED_FILES = ["ns/mnt", "ns/user", "ns/pid", "root"];

// linux/capability.h
const CAP_NET_ADMIN = 12n;
const CAP_SYS_ADMIN = 21n;

/** Whether it is root in the server's namespaces, with the capabilities that plugins need. */
export function isAllowed({ pid, uid }: PeerCredentials): boolean {
  if (uid !== 0) return false;
  const [, digits] = /^CapEff:\t([0-9a-f]+)$/m.exec(ignoreSystemErrors(() => readText(`/proc/${pid}/status`)) ?? "") ??
    [];
  const capabilities = BigInt(`0x${digits ?? "0"}`);
  return [CAP_NET_ADMIN, CAP_SYS_ADMIN].every((capability) => capabilities >> capability & 1n) &&
    SHARED_FILES.every((name) => {
      const identity = ignoreSystemErrors(() => findStat(`/proc/${pid}/${name}`)?.identity);
      return identity !== undefined && identity === findStat(`/proc/self/${name}`)!.identity;
    });
}
