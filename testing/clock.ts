/** A clock that a test moves, for what waits seconds or minutes. @module */
import { spyOn } from "bun:test";

export interface Clock extends Disposable {
  pass(ms: number): void;
}

/** Stands still between calls of `pass`, for all that asks `performance.now()` or `Date.now()`. */
export function stopClock(): Clock {
  const [startMs, startDateMs] = [performance.now(), Date.now()];
  let passedMs = 0;
  const clocks = [
    spyOn(performance, "now").mockImplementation(() => startMs + passedMs),
    spyOn(Date, "now").mockImplementation(() => startDateMs + passedMs),
  ];
  return {
    pass: (ms) => void (passedMs += ms),
    [Symbol.dispose]: () => clocks.forEach((clock) => clock.mockRestore()),
  };
}
