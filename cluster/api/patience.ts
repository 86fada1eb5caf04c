import type { RequestLimits } from "./client.ts";

export interface Patience extends RequestLimits {
  /** Each further pause is twice as long, up to the longest. */
  readonly firstPauseMs: number;
  readonly longestPauseMs: number;
  /** Limits a list, and no watch. */
  readonly wholeMs: number;
  /** A watch that lives so long was a success: what went wrong before has ended. */
  readonly lastingMs: number;
}

/** The server tells a version to a watch about every minute, also if nothing happens. */
export const PATIENCE: Patience = {
  firstPauseMs: 500,
  longestPauseMs: 30_000,
  lastingMs: 10_000,
  answerMs: 30_000,
  silenceMs: 180_000,
  wholeMs: 300_000,
};

/** Pauses that grow, and that no two nodes make alike. */
export class Pauses {
  readonly #patience: Patience;
  #count = 0;

  constructor(patience: Patience) {
    this.#patience = patience;
  }

  /** @param wishedMs what the server asks for */
  next(signal: AbortSignal, wishedMs = 0): Promise<void> {
    const { firstPauseMs, longestPauseMs } = this.#patience;
    const ms = Math.min(longestPauseMs, firstPauseMs * 2 ** this.#count++);
    return sleep(wishedMs + ms * (0.5 + Math.random() / 2), signal);
  }

  reset(): void {
    this.#count = 0;
  }
}

/** Ends early with the signal. */
function sleep(ms: number, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, ms);
  const end = () => resolve();
  signal.addEventListener("abort", end);
  if (signal.aborted) end();
  return promise.finally(() => {
    clearTimeout(timer);
    signal.removeEventListener("abort", end);
  });
}
