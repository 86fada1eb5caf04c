/**
 * Makes threads possible where a seccomp filter refuses clone3(2) with EPERM, such as Docker's before 20.10.10.
 *
 * The C library tries clone(2) only after ENOSYS. Otherwise the JavaScript runtime aborts when its compiler starts a
 * thread.
 *
 * @module
 */
import { ENOSYS } from "./errno.ts";
import { SystemError } from "./error.ts";
import { newSockFprog, sys } from "./libc.ts";

const arm = process.arch === "arm64";
export const SYS_prctl = arm ? 167 : 157;
export const SYS_seccomp = arm ? 277 : 317;
export const SYS_clone3 = 435;
const PR_GET_SECCOMP = 21;
const SECCOMP_MODE_FILTER = 2;
export const SECCOMP_SET_MODE_FILTER = 1;

// Words of struct sock_filter { u16 code; u8 jt; u8 jf; u32 k; }
const SECCOMP_PROGRAM = [
  // Load the call's number from struct seccomp_data.
  [0x20, 0],
  // Skip one instruction for other calls.
  [0x15 | 1 << 24, SYS_clone3],
  [0x06, 0x0005_0000 | ENOSYS],
  [0x06, 0x7fff_0000],
];

/**
 * If a filter refuses clone3(2), installs one that answers ENOSYS, for child programs too: the later filter's error
 * counts. Does nothing where that is forbidden.
 */
export function allowClone3Fallback(): void {
  // Without a filter, this call is the only cost.
  if (resultOrErrorCode(() => sys.syscall(SYS_prctl, PR_GET_SECCOMP, null, 0, 0)) !== SECCOMP_MODE_FILTER) return;
  // Without arguments, clone3 starts nothing.
  if (resultOrErrorCode(() => sys.syscall(SYS_clone3, 0, null, 0, 0)) !== "EPERM") return;
  const { memory, address } = newSockFprog(SECCOMP_PROGRAM.flat());
  resultOrErrorCode(() => sys.syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, null, address, 0) + memory.length);
}

function resultOrErrorCode(call: () => number): number | string {
  try {
    return call();
  } catch (error) {
    if (error instanceof SystemError) return error.code;
    throw error;
  }
}
