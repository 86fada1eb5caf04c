import { lockByte } from "../ffi/sys/byte_lock.ts";
import { sleep } from "../ffi/sys/poll.ts";
import { interruptedBy } from "../ffi/sys/signals.ts";
import { SIGUSR2 } from "../ffi/sys/uapi.ts";
import { COMMAND_NAME } from "../program/installed_file.ts";
import type { ShimCall } from "./call.ts";

/** As long as a cold command waits for a program that outlives its caller. The shim has the same limit. */
const LOCK_TIMEOUT_MS = 30_000;

/**
 * Lets a DEL wait while the ADD of a killed caller is undone. A DEL without the server waits too: its shim looks at
 * this lock. A call that has waited for long goes on without the lock: the other one may wait for it. Other plugins of
 * the attachment are other locks: a plugin may start a program that calls another.
 */
export function lockAttachment({ programName, env }: ShimCall, locks: number): Disposable | undefined {
  const { CNI_COMMAND, CNI_CONTAINERID = "", CNI_IFNAME = "" } = env;
  if (programName === COMMAND_NAME || (CNI_COMMAND !== "ADD" && CNI_COMMAND !== "DEL")) return undefined;
  const hash = fnv1a([programName, CNI_CONTAINERID, CNI_IFNAME].map((word) => `${word}\0`).join(""));
  // The call has not begun. SIGUSR2 says that its caller is gone, and kills this worker.
  return lockByte(locks, BigInt(hash), LOCK_TIMEOUT_MS, (ms) => interruptedBy([SIGUSR2], () => sleep(ms)));
}

/** The shim computes it, too. */
function fnv1a(text: string): number {
  let hash = 2166136261;
  for (const byte of new TextEncoder().encode(text)) hash = Math.imul(hash ^ byte, 16777619);
  return hash >>> 0;
}
