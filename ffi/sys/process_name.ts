import { addressOf, sys } from "./libc.ts";

// linux/prctl.h
const PR_SET_NAME = 15;
// TASK_COMM_LEN of linux/sched.h, without the NUL.
const MAX_BYTES = 15;

/** What ps(1) and top(1) call this thread, which has the name of its file otherwise. */
export function setProcessName(name: string): void {
  const text = new Uint8Array(MAX_BYTES + 1);
  new TextEncoder().encodeInto(name, text.subarray(0, MAX_BYTES));
  sys.prctl(PR_SET_NAME, addressOf(text), 0, 0, 0);
}
