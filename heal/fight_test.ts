import { expect, test } from "bun:test";
import { Fight } from "./fight.ts";

test("pauses double while what was put back is removed soon, up to a limit, and end when it lasts", () => {
  const fight = new Fight({ fightWindowMs: 100, freeRounds: 3, firstPauseMs: 1000, longestPauseMs: 3000 });
  const play = (lossAfterMs: number, start: number) => {
    fight.noteLoss(start + lossAfterMs);
    const restoredAt = Math.max(start + lossAfterMs, fight.pausedUntil);
    return [restoredAt, fight.noteRound(restoredAt)] as const;
  };
  let now = 0;
  const pauses = Array.from({ length: 6 }, () => {
    const [restoredAt, pauseMs] = play(50, now);
    now = restoredAt;
    return pauseMs;
  });
  expect(pauses).toEqual([0, 0, 1000, 2000, 3000, 3000]);
  expect(fight.rounds).toBe(6);
  // It lasted for longer than the window: the next loss is no part of the fight.
  expect(play(101, now)).toEqual([now + 101, 0]);
  expect(fight.rounds).toBe(1);
});
