import type { HealingLimits } from "./limits.ts";

type FightLimits = Pick<HealingLimits, "fightWindowMs" | "freeRounds" | "firstPauseMs" | "longestPauseMs">;

/** Notices that another program removes again what was put back. Times are those of `performance.now()`. */
export class Fight {
  readonly #limits: FightLimits;
  #rounds = 0;
  #lastRound = -Infinity;
  #pauseMs = 0;

  constructor(limits: FightLimits) {
    this.#limits = limits;
  }

  get rounds(): number {
    return this.#rounds;
  }

  /** Until then, nothing is put back. */
  get pausedUntil(): number {
    return this.#lastRound + this.#pauseMs;
  }

  /** Something is missing that was there until now. If it lasted, the fight is over. */
  noteLoss(now: number): void {
    if (now <= this.#lastRound + this.#limits.fightWindowMs) return;
    this.#rounds = 0;
    this.#pauseMs = 0;
  }

  /** @returns how long to wait before it is put back again; 0 if this is no fight */
  noteRound(now: number): number {
    const { freeRounds, firstPauseMs, longestPauseMs } = this.#limits;
    const pauses = ++this.#rounds - freeRounds;
    this.#lastRound = now;
    return this.#pauseMs = pauses < 0 ? 0 : Math.min(firstPauseMs * 2 ** pauses, longestPauseMs);
  }
}
