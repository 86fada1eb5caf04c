/**
 * Kernel parameters of the thread's network namespace, see {@linkcode Netns.run}.
 *
 * Names have slashes, as in `net/ipv4/conf/eth0.100/forwarding`, since interface names may hold dots.
 *
 * @module
 */
import { ignoreErrors, withPurpose } from "./sys/error.ts";
import { findKernelText, openReadWrite, overwrite, pwrite, readOrdinaryText } from "./sys/file.ts";

/** Such parameters may be only readable. */
const READ_ONLY_CODES = ["EROFS", "EACCES", "EPERM"];

/** The name as people and sysctl(8) know it: with dots, unless the name of a link holds one. */
export function sysctlWord(name: string): string {
  return name.includes(".") ? name : name.replaceAll("/", ".");
}

/** `undefined` if the kernel lacks it. */
export function findSysctl(name: string): string | undefined {
  return findKernelText(`/proc/sys/${name}`)?.trim();
}

/** Writes only if needed: /proc/sys may be read-only. */
export function ensureSysctl(name: string, value: string): void {
  const path = `/proc/sys/${name}`;
  withPurpose(`write "${value}" to "${path}"`, () => {
    using file = ignoreErrors(READ_ONLY_CODES, () => openReadWrite(path));
    if (file) {
      if (readOrdinaryText(file.fd).trim() !== value) pwrite(file.fd, 0, new TextEncoder().encode(value));
    } else if (findSysctl(name) !== value) overwrite(path, value);
  });
}
