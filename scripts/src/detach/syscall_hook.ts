/** Acts between two system calls of this process. Call {@linkcode hookSyscalls} before anything else uses the table of them. @module */
import { sys } from "../../../ffi/sys/libc.ts";

/** Calls before which another process could change something. */
const HOOKED_SYSCALLS = "open send sendmsg recv recvmmsg setns flock mkdir linkat rename unlink write read".split(" ");

let remaining = 0;
let action: (() => void) | undefined;

export function hookSyscalls(): void {
  for (const name of HOOKED_SYSCALLS) {
    // Bound as the table binds it, but kept here.
    const call = Reflect.get(Object.getPrototypeOf(sys), name, {}) as (...args: unknown[]) => number;
    const value = (...args: unknown[]) => {
      if (action && --remaining <= 0) {
        const due = action;
        action = undefined;
        due();
      }
      return call(...args);
    };
    Object.defineProperty(sys, name, { value });
  }
}

/** Calls `interrupt` before the `count`-th system call of `command`, or after the command if it makes fewer. */
export function runWithInterruption<T>(count: number, interrupt: () => void, command: () => T): T {
  [remaining, action] = [count, interrupt];
  try {
    return command();
  } finally {
    const isPending = action !== undefined;
    action = undefined;
    if (isPending) interrupt();
  }
}
