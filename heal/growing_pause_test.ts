import { expect, test } from "bun:test";
import { GrowingPause } from "./growing_pause.ts";

test("pauses double up to a limit, and begin again after a success", () => {
  const pause = new GrowingPause(10, 35);
  expect([pause.isRunning, pause.next(), pause.next(), pause.next(), pause.isRunning]).toEqual([
    false,
    10,
    20,
    35,
    true,
  ]);
  pause.reset();
  expect([pause.isRunning, pause.next()]).toEqual([false, 10]);
});
