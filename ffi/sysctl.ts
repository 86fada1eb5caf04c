/**
 * Kernel parameters under /proc/sys, as the thread's network namespace has them: call these inside {@linkcode Netns.run}.
 *
 * Names are paths with slashes, `net/ipv4/conf/eth0.100/forwarding`, since interface names may hold dots.
 *
 * @see sysctl(8)
 * @module
 */
import { ignoreErrors, withPurpose } from "./sys/error.ts";
import { findText, openReadWrite, overwrite, pwrite, readOrdinaryText } from "./sys/file.ts";

/** What opening a parameter ends with that can be read at most. */
const READ_ONLY_CODES = ["EROFS", "EACCES", "EPERM"];

/** The value of a parameter, or `undefined` if the kernel does not have it. @throws {SystemError} */
export function findSysctl(name: string): string | undefined {
  return findText(`/proc/sys/${name}`)?.trim();
}

/** Sets a parameter unless it has the value already, so that a read-only /proc/sys does no harm where nothing needs to change. @throws {SystemError} */
export function ensureSysctl(name: string, value: string): void {
  const path = `/proc/sys/${name}`;
  withPurpose(`write "${value}" to "${path}"`, () => {
    using file = ignoreErrors(READ_ONLY_CODES, () => openReadWrite(path));
    if (file) {
      if (readOrdinaryText(file.fd).trim() !== value) pwrite(file.fd, 0, new TextEncoder().encode(value));
    } else if (findSysctl(name) !== value) overwrite(path, value);
  });
}
