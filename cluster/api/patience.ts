import type { RequestLimits } from "./client.ts";

export interface Patience extends RequestLimits {
  /** Each further pause is twice as long, up to the longest. */
  readonly firstPauseMs: number;
  /** @param clients how many ask the same server, and all again when it is back */
  longestPauseMs(clients: number): number;
  /** Limits a list, and no watch. */
  readonly wholeMs: number;
  /** A watch that lives so long was a success: what went wrong before has ended. */
  readonly lastingMs: number;
}

/** The server tells a version to a watch about every minute, also if nothing happens. */
export const PATIENCE: Patience = {
  firstPauseMs: 500,
  // At most 170 lists a second, however many nodes there are. New ones wait for it, so it is no longer than need be.
  longestPauseMs: (clients) => Math.min(30_000, Math.max(2000, clients * 6)),
  lastingMs: 10_000,
  answerMs: 30_000,
  silenceMs: 180_000,
  wholeMs: 300_000,
};

/** Pauses that grow, and that no two nodes make alike. */
export class Pauses {
  readonly #patience: Patience;
  readonly #clients: () => number;
  #count = 0;

  constructor(patience: Patience, clients: () => number) {
    this.#patience = patience;
    this.#clients = clients;
  }

  /** @param wishedMs what the server asks for */
  next(signal: AbortSignal, wishedMs = 0): Promise<void> {
    const { firstPauseMs } = this.#patience;
    const ms = Math.min(this.#patience.longestPauseMs(this.#clients()), firstPauseMs * 2 ** this.#count++);
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
