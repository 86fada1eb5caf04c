/**
 * Kernel parameters of the thread's network namespace, see {@linkcode Netns.run}.
 *
 * Names have slashes, as in `net/ipv4/conf/eth0.100/forwarding`, since interface names may hold dots.
 *
 * @module
 */
import { ignoreErrors, SystemError, withPurpose } from "./error.ts";
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

/** Of write-only parameters such as net/ipv4/route/flush. */
const UNREADABLE_CODES = ["EACCES", "EPERM", "EINVAL", "EIO"];

/** `undefined` if the kernel lacks it or does not show it. */
export function readSysctl(name: string): string | undefined {
  return lookUpSysctl(name).value;
}

export function lookUpSysctl(name: string): { readonly isPresent: boolean; readonly value?: string } {
  try {
    const value = findSysctl(name);
    return { isPresent: value !== undefined, ...value !== undefined && { value } };
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    if (error.code === "EISDIR") return { isPresent: false };
    if (UNREADABLE_CODES.includes(error.code)) return { isPresent: true };
    throw error;
  }
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

/** Numbers have several forms, and any blanks separate them. */
export function isSameSysctlValue(a: string, b: string): boolean {
  const [wordsOfA, wordsOfB] = [a, b].map((text) => text.trim().split(/\s+/));
  return wordsOfA!.length === wordsOfB!.length &&
    wordsOfA!.every((word, i) => word === wordsOfB![i] || isSameNumber(word, wordsOfB![i]!));
}

function isSameNumber(a: string, b: string): boolean {
  const isNumber = /^-?(0x[\da-f]+|\d+)$/i;
  return isNumber.test(a) && isNumber.test(b) && Number(a) === Number(b);
}
