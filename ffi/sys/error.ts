/**
 * The error that every failed system call becomes.
 *
 * @module
 */
import { describeErrno } from "./errno.ts";

/**
 * A system call failed. Match on `code`, never on the message.
 *
 * The message reads `Cannot open "/x": No such file or directory (ENOENT)`; without a purpose it names the system call.
 *
 * @example
 * ```ts
 * import { loadNetwork, SystemError } from "./mod.ts";
 *
 * try {
 *   loadNetwork("/etc/cni/absent.conflist");
 * } catch (error) {
 *   if (error instanceof SystemError) console.log(error.code); // ENOENT
 * }
 * ```
 */
export class SystemError extends Error {
  /** `SystemError`, or the name of a class that extends it. */
  override readonly name: string = "SystemError";
  /** The system call: `openat`. */
  readonly syscall: string;
  /** The kernel's error number, positive: 2. */
  readonly errno: number;
  /** Its name: `ENOENT`. */
  readonly code: string;

  /** `purpose` follows "Cannot" in the message, `remark` the code. */
  constructor(syscall: string, errno: number, purpose = `call ${syscall}`, remark = "") {
    const { code, sentence } = describeErrno(errno);
    super(`Cannot ${purpose}: ${sentence} (${code}${remark && `, ${remark}`})`);
    this.syscall = syscall;
    this.errno = errno;
    this.code = code;
  }
}

/** Runs a system call and, if it fails, says what it was for: `open "/x"`. @throws {SystemError} */
export function withPurpose<T>(purpose: string, call: () => T): T {
  try {
    return call();
  } catch (error) {
    if (error instanceof SystemError) throw new SystemError(error.syscall, error.errno, purpose);
    throw error;
  }
}

/** Runs `call`; a failure of the kernel gives `undefined`, every other error passes: for what can be done without. */
export function ignoreSystemErrors<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    if (error instanceof SystemError) return undefined;
    throw error;
  }
}

/** Runs `call`; a failure with one of these codes gives `undefined`, every other error passes. */
export function ignoreErrors<T>(codes: readonly string[], call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    if (error instanceof SystemError && codes.includes(error.code)) return undefined;
    throw error;
  }
}
