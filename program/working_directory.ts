import { findSymlinkTarget } from "../ffi/sys/stat.ts";

/** What the kernel puts behind the path of a directory that is gone. */
const REMOVED = " (deleted)";

/**
 * Only relative paths need it, so its removal is no error. `process.cwd()` tells the first one for ever, and a server has
 * another one for each call.
 */
export function findWorkingDirectory(): string | undefined {
  const path = findSymlinkTarget("/proc/self/cwd");
  return path?.endsWith(REMOVED) ? undefined : path;
}
