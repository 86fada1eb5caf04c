/**
 * Kernel parameters of the thread's network namespace; call these inside {@linkcode Netns.run}.
 *
 * Names have slashes, `net/ipv4/conf/eth0.100/forwarding`, since interface names may hold dots.
 *
 * @see sysctl(8)
 * @module
 */
import { ignoreErrors, withPurpose } from "./sys/error.ts";
import { findText, openReadWrite, overwrite, pwrite, readOrdinaryText } from "./sys/file.ts";

/** Parameters that may only be readable. */
const READ_ONLY_CODES = ["EROFS", "EACCES", "EPERM"];

/** The value of a parameter, if the kernel has it. */
export function findSysctl(name: string): string | undefined {
  return findText(`/proc/sys/${name}`)?.trim();
}

/** Sets a parameter unless it has the value: a read-only /proc/sys then does no harm. */
export function ensureSysctl(name: string, value: string): void {
  const path = `/proc/sys/${name}`;
  withPurpose(`write "${value}" to "${path}"`, () => {
    using file = ignoreErrors(READ_ONLY_CODES, () => openReadWrite(path));
    if (file) {
      if (readOrdinaryText(file.fd).trim() !== value) pwrite(file.fd, 0, new TextEncoder().encode(value));
    } else if (findSysctl(name) !== value) overwrite(path, value);
  });
}
