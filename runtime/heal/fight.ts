import type { HealingLimits } from "./limits.ts";

type FightLimits = Pick<HealingLimits, "fightWindowMs" | "freeRounds" | "firstPauseMs" | "longestPauseMs">;

/** Notices that another program keeps removing what was put back. Times are those of `performance.now()`. */
export class Fight {
  readonly #limits: FightLimits;
  #rounds = 0;
  #lastLoss = -Infinity;
  #pauseMs = 0;

  constructor(limits: FightLimits) {
    this.#limits = limits;
  }

  /** How often in a row something was put back. */
  get rounds(): number {
    return this.#rounds;
  }

  /** Something was put back. @returns how long to wait before it is put back again; 0 if this is no fight */
  pauseAfterRestore(now: number): number {
    const { fightWindowMs, freeRounds, firstPauseMs, longestPauseMs } = this.#limits;
    const isAgain = now - this.#lastLoss <= this.#pauseMs + fightWindowMs;
    this.#lastLoss = now;
    this.#rounds = isAgain ? this.#rounds + 1 : 1;
    const pauses = this.#rounds - freeRounds;
    return this.#pauseMs = pauses < 0 ? 0 : Math.min(firstPauseMs * 2 ** pauses, longestPauseMs);
  }
}
