import { expect, test } from "bun:test";
import { modifiedSince, nowCeil } from "./mtime.ts";

const SECOND = 1_000_000_000n;

test("what was changed since a moment is young, and what was before is not", () => {
  const now = nowCeil();
  const isYoung = modifiedSince(now - SECOND);
  expect([now, now - SECOND, now - SECOND - 1n, 0n].map(isYoung)).toEqual([true, true, false, false]);
});

test("what was there already is not younger than now", () => {
  const before = BigInt(Date.now()) * 1_000_000n + 999_999n;
  const isYoung = modifiedSince(nowCeil());
  expect(isYoung(before)).toBe(false);
  Bun.sleepSync(2);
  expect(isYoung(nowCeil())).toBe(true);
});

test("what is to be in the future, since the clock was set back, is not young", () => {
  expect(modifiedSince(nowCeil())(nowCeil() + 3600n * SECOND)).toBe(false);
});
