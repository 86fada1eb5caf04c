/**
 * Kernel parameters under /proc/sys, as the thread's network namespace has them: call these inside {@linkcode Netns.run}.
 *
 * Names are paths with slashes, `net/ipv4/conf/eth0.100/forwarding`, since interface names may hold dots.
 *
 * @see sysctl(8)
 * @module
 */
import { findText, overwrite } from "./sys/file.ts";

/** The value of a parameter, or `undefined` if the kernel does not have it. @throws {SystemError} */
export function findSysctl(name: string): string | undefined {
  return findText(`/proc/sys/${name}`)?.trim();
}

/** Sets a parameter unless it has the value already, so that a read-only /proc/sys does no harm where nothing needs to change. @throws {SystemError} */
export function ensureSysctl(name: string, value: string): void {
  if (findSysctl(name) !== value) overwrite(`/proc/sys/${name}`, value);
}
