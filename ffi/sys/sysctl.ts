/**
 * Kernel parameters of the thread's network namespace, see {@linkcode Netns.run}.
 *
 * Names have slashes, as in `net/ipv4/conf/eth0.100/forwarding`, since interface names may hold dots.
 *
 * @module
 */
import { ignoreErrors, withPurpose } from "./error.ts";
import { findKernelText, openReadWrite, overwrite, pwrite, readKernelText } from "./file.ts";

// Such parameters may be only readable.
const READ_ONLY_CODES = ["EROFS", "EACCES", "EPERM"];

/** The name as people and sysctl(8) know it: with dots, unless the name of a link holds one. */
export function sysctlWord(name: string): string {
  return name.includes(".") ? name : name.replaceAll("/", ".");
}

export function findSysctl(name: string): string | undefined {
  return findKernelText(`/proc/sys/${name}`)?.trim();
}

/** Writes only if needed: /proc/sys may be read-only. @param beforeChange called only if there is one */
export function ensureSysctl(name: string, value: string, beforeChange = () => {}): void {
  const path = `/proc/sys/${name}`;
  withPurpose(`write "${value}" to "${path}"`, () => {
    using file = ignoreErrors(READ_ONLY_CODES, () => openReadWrite(path));
    const present = file ? readKernelText(file.fd).trim() : findSysctl(name);
    if (present === value) return;
    beforeChange();
    if (file) pwrite(file.fd, 0, new TextEncoder().encode(value));
    else overwrite(path, value);
  });
}
