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
  /** `SystemError`, or the name of a class that extends it. */
  override readonly name: string = "SystemError";
  /** The system call: `openat`. */
  readonly syscall: string;
  /** The kernel's error number, positive: 2. */
  readonly errno: number;
  /** Its name: `ENOENT`. */
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

  /** The same failure with another purpose: `open "/x"`. */
  withPurpose(purpose: string): SystemError {
    return new SystemError(this.syscall, this.errno, purpose, this.#remark);
  }

  /** The same failure with another remark. */
  withRemark(remark: string): SystemError {
    return new SystemError(this.syscall, this.errno, this.#purpose, remark);
  }
}

/** Runs `call`; its {@linkcode SystemError} names `purpose`: `open "/x"`. A function is called on failure only. */
export function withPurpose<T>(purpose: string | (() => string), call: () => T): T {
  try {
    return observer ? observer({ kind: "step", purpose }, call) : call();
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    throw error.withPurpose(typeof purpose === "string" ? purpose : purpose());
  }
}

/** `undefined` if a system call fails. */
export function ignoreSystemErrors<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    if (error instanceof SystemError) return undefined;
    throw error;
  }
}

/** `undefined` if `call` fails with one of `codes`. */
export function ignoreErrors<T>(codes: readonly string[], call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    if (error instanceof SystemError && codes.includes(error.code)) return undefined;
    throw error;
  }
}
