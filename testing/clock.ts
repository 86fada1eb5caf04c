/** A clock that a test moves, for what waits seconds or minutes. @module */
import { spyOn } from "bun:test";

export interface Clock extends Disposable {
  pass(ms: number): void;
}

/** Stands still between calls of `pass`, for all that asks `performance.now()`. */
export function stopClock(): Clock {
  let nowMs = performance.now();
  const now = spyOn(performance, "now").mockImplementation(() => nowMs);
  return {
    pass: (ms) => void (nowMs += ms),
    [Symbol.dispose]: () => now.mockRestore(),
  };
}
