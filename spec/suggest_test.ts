import { expect, test } from "bun:test";
import { editDistance, suggestion } from "./suggest.ts";

test.each([
  ["", "", 0],
  ["run", "run", 0],
  ["rn", "run", 1],
  ["rnu", "run", 1],
  ["kitten", "sitting", 3],
  ["", "abc", 3],
])("distance() from %j to %j is %d", (a, b, expected) => {
  expect(editDistance(a, b)).toBe(expected);
  expect(editDistance(b, a)).toBe(expected);
});

test("suggestion() names the nearest word if it is near", () => {
  expect(suggestion("chekc", ["add", "check", "del"])).toBe('; did you mean "check"?');
  expect(suggestion("dle", ["add", "check", "del"])).toBe('; did you mean "del"?');
  expect(suggestion("frobnicate", ["add", "check", "del"])).toBe("");
});
