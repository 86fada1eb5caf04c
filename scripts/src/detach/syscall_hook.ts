/** Acts between two system calls of this process. Call {@linkcode watchCalls} before anything else uses the table of them. @module */
import { sys } from "../../../ffi/sys/libc.ts";

/** Calls with which something begins that another process could come between. */
const WATCHED = [
  ...["open", "send", "sendmsg", "recv", "setns", "flock", "mkdir"],
  ...["linkat", "rename", "unlink", "write", "read"],
] as const;

let left = 0;
let act: (() => void) | undefined;

/** Puts a counter in front of every call. */
export function watchCalls(): void {
  for (const name of WATCHED) {
    // Bound as the table itself does it, but kept elsewhere.
    const call = Reflect.get(Object.getPrototypeOf(sys), name, {}) as (...args: unknown[]) => number;
    const value = (...args: unknown[]) => {
      if (act && --left <= 0) {
        const now = act;
        act = undefined;
        now();
      }
      return call(...args);
    };
    Object.defineProperty(sys, name, { value });
  }
}

/** Has `happen` called before the `count`-th system call of `command`, if it makes so many; else behind it. */
export function during<T>(count: number, happen: () => void, command: () => T): T {
  [left, act] = [count, happen];
  try {
    return command();
  } finally {
    const isOutstanding = act !== undefined;
    act = undefined;
    if (isOutstanding) happen();
  }
}
