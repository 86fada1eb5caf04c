// One is warm while the other serves.
export const MIN_WORKERS = 2;

/** Tests lower them so that they need not wait. */
export interface ServerLimits {
  /** A worker beyond the first two stays so long without need. */
  readonly extraWorkerIdleMs: number;
  /** A worker with more private memory is replaced; one that is warm has 29 MB. */
  readonly maxWorkerBytes: number;
  /** A look at the memory of a worker takes 0.3 ms. */
  readonly callsPerCheck: number;
  /** A worker is replaced then: memory of the runtime grows by 1 KB with each call. */
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
