/** One is warm while the other serves. */
export const MIN_WORKERS = 2;

/** Limits of a server, which tests lower so that they need not wait. */
export interface ServerLimits {
  /** So long a worker beyond the first two stays without need. */
  readonly extraWorkerIdleMs: number;
  /** A worker with more private memory is replaced; one that is warm has 22 MB. */
  readonly maxWorkerBytes: number;
  /** Calls of a worker between two looks at its memory, which take 0.3 ms. */
  readonly callsPerCheck: number;
  /** Then a worker is replaced: memory of the runtime grows by 1 KB with each call. */
  readonly maxCalls: number;
  /** Without a call and without work for so long, a server ends that systemd starts again. `Infinity`: it stays. */
  readonly idleMs: number;
}

export const SERVER_LIMITS: ServerLimits = {
  extraWorkerIdleMs: 60_000,
  maxWorkerBytes: 100_000_000,
  callsPerCheck: 100,
  maxCalls: 2000,
  idleMs: 600_000,
};
