/** One question that a server leaves unanswered is enough: a GC asks for each attachment, while all ADDs wait. @module */
import type { Netns } from "../../../ffi/netns/netns.ts";
import { findStat } from "../../../ffi/sys/stat.ts";
import { CniError, Code } from "../../../spec/error.ts";

/** A program may use its handle of the host for days. */
const FORGET_MS = 60_000;

/** How long to wait for a server: not at all if it left an earlier question of the same command unanswered. */
export function answerTimeoutMs(host: Netns, socketPath: string, timeoutMs: number): number {
  const silentSince = host.silences?.get(socketPath) ?? -Infinity;
  return performance.now() < silentSince + FORGET_MS ? 0 : timeoutMs;
}

/** Calls of one command share the handle of the host. */
export function noteSilence(host: Netns, socketPath: string): void {
  host.silences ??= new Map();
  host.silences.set(socketPath, performance.now());
}

/** With 150 calls at once on two processors, a server waits for its turn for ten seconds. */
export const MAX_BUSY_WAITS = 6;

/** Whether a server that gives no answer works. One that is stopped, hangs, or waits for a descriptor, does not. */
export function isServerBusy(stateDirectory: string): boolean {
  const identity = findStat(`${stateDirectory}/lock`)?.identity;
  return identity !== undefined && loadLockHolder().isHeldByWorking(identity);
}

/** Rarely needed: not loaded at start-up. */
function loadLockHolder(): typeof import("../../../ffi/sys/lock_holder.ts") {
  return require("../../../ffi/sys/lock_holder.ts");
}

/** For STATUS, which has a code of its own for a server that is missing or hangs. */
export function requireAvailable(ask: () => void): void {
  try {
    ask();
  } catch (error) {
    if (!(error instanceof CniError && error.code === Code.TryAgainLater)) throw error;
    const { message, details } = error;
    throw new CniError(Code.NotAvailable, message, { ...details && { details }, cause: error });
  }
}
