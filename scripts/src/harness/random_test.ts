import { expect, test } from "bun:test";
import { newRandomSource } from "./random.ts";

test("newRandomSource() gives the same for the same seed, and what it picks is weighted", () => {
  const numbers = (seed: number) => Array.from({ length: 3 }, newRandomSource(seed).next);
  expect(numbers(1)).toEqual(numbers(1));
  expect(numbers(1)).not.toEqual(numbers(2));
  const random = newRandomSource(3);
  const picked = Array.from(
    { length: 1000 },
    () => random.pickWeighted([[0.9, "often"], [0.1, "seldom"], [0, "never"]]),
  );
  expect(picked).not.toContain("never");
  expect(picked.filter((value) => value === "seldom").length).toBeWithin(50, 200);
});
