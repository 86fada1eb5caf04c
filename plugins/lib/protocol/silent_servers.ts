/** One question that a server leaves unanswered is enough: a GC asks for each attachment, while all ADDs wait. @module */
import type { Netns } from "../../../ffi/netns.ts";
import { awaitReadable } from "../../../ffi/sys/poll.ts";
import { CniError, Code } from "../../../spec/error.ts";

/** A program may use its handle of the host for days. */
const FORGET_MS = 60_000;

/** By the handle of the host, which calls of one command share, and the socket. */
const silences = new WeakMap<Netns, Map<string, number>>();

/** How long to wait for a server: not at all if it left an earlier question of the same command unanswered. */
export function answerTimeoutMs(host: Netns, socketPath: string, timeoutMs: number): number {
  const silentSince = silences.get(host)?.get(socketPath) ?? -Infinity;
  return performance.now() < silentSince + FORGET_MS ? 0 : timeoutMs;
}

export function noteSilence(host: Netns, socketPath: string): void {
  const known = silences.get(host) ?? new Map<string, number>();
  silences.set(host, known.set(socketPath, performance.now()));
}

/**
 * A machine without a free processor delays this process as it does the server. So what counts is how often this one
 * looked.
 */
export const LOOK_MS = 50;

/** False if nothing came. */
export function awaitAnswer(fd: number, timeoutMs: number): boolean {
  let leftMs = timeoutMs;
  for (; leftMs > LOOK_MS; leftMs -= LOOK_MS) if (awaitReadable(fd, LOOK_MS)) return true;
  return awaitReadable(fd, leftMs);
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
