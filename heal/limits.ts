export interface HealingLimits {
  /** A storm is over after a time without a change that matters. */
  readonly quietMs: number;
  /** A storm is not waited for longer. */
  readonly longestStormMs: number;
  /** How long to wait for another command for the same container. */
  readonly lockWaitMs: number;
  /** After something was put back, and after a failure: when to look again. ADDs that ran meanwhile have ended. */
  readonly laterLooksMs: readonly number[];
  /** When these looks are over: when to try again what failed. Each further pause is twice as long. */
  readonly firstRetryMs: number;
  readonly longestRetryMs: number;
  /** After a restore, and after a link has gone: when an engine may have removed the result of an attachment. */
  readonly resultGoneMs: readonly number[];
  /** Something that is lost again within this time counts as a fight. */
  readonly fightWindowMs: number;
  /** So often in a row, it is put back at once. */
  readonly freeRounds: number;
  /** The first pause of a fight; each further one is twice as long. */
  readonly firstPauseMs: number;
  readonly longestPauseMs: number;
  /** From so many attachments on, elements come back from a copy, before plugins are called. */
  readonly minCopied: number;
  /** The kernel drops notifications that do not fit. */
  readonly bufferBytes: number;
}

export const HEALING_LIMITS: HealingLimits = {
  quietMs: 50,
  longestStormMs: 300,
  lockWaitMs: 10,
  laterLooksMs: [1000, 10_000],
  firstRetryMs: 10_000,
  longestRetryMs: 60_000,
  resultGoneMs: [0, 20, 200],
  fightWindowMs: 30_000,
  freeRounds: 3,
  firstPauseMs: 2000,
  longestPauseMs: 3_600_000,
  minCopied: 50,
  bufferBytes: 16 * 1024 * 1024,
};
