import { describeErrno } from "./errno.ts";
import { observer } from "./observer.ts";

/**
 * A system call failed: `Cannot open "/x": No such file or directory (ENOENT)`. Match on `code`, never on the message.
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
  /** A class that extends it has another name. */
  override readonly name: string = "SystemError";
  /** The system call that failed: `openat`. */
  readonly syscall: string;
  /** The kernel's error number, positive: 2. */
  readonly errno: number;
  /** The name of the error number: `ENOENT`. */
  readonly code: string;
  readonly #purpose: string;
  readonly #remark: string;

  /** `purpose` follows "Cannot" in the message, `remark` the code. */
  constructor(syscall: string, errno: number, purpose = `call ${syscall}`, remark = "") {
    const { code, sentence } = describeErrno(errno);
    super(`Cannot ${purpose}: ${sentence} (${code}${remark && `, ${remark}`})`);
    this.syscall = syscall;
    this.errno = errno;
    this.code = code;
    this.#purpose = purpose;
    this.#remark = remark;
  }

  /** Describes the same failure by another purpose: `open "/x"`. */
  withPurpose(purpose: string): SystemError {
    return new SystemError(this.syscall, this.errno, purpose, this.#remark);
  }

  /** Adds another remark to the same failure. */
  withRemark(remark: string): SystemError {
    return new SystemError(this.syscall, this.errno, this.#purpose, remark);
  }
}

/** Errors of `call` name `purpose`: `open "/x"`. A function is called on failure only. */
export function withPurpose<T>(purpose: string | (() => string), call: () => T): T {
  try {
    return observer ? observer({ kind: "step", purpose }, call) : call();
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    throw error.withPurpose(typeof purpose === "string" ? purpose : purpose());
  }
}

export function ignoreSystemErrors<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    if (error instanceof SystemError) return undefined;
    throw error;
  }
}

export function ignoreErrors<T>(codes: readonly string[], call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    if (error instanceof SystemError && codes.includes(error.code)) return undefined;
    throw error;
  }
}
