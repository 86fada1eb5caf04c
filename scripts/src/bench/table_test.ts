import { expect, test } from "bun:test";
import { percentile } from "../harness/statistics.ts";
import { interleave } from "./measure.ts";
import {
  differenceRow,
  formatMarkdown,
  formatNumber,
  missingRow,
  plainRow,
  ratioRow,
  speedupRow,
  summarize,
} from "./table.ts";

const ours = summarize("cni", [9, 10, 11]);
const other = summarize("reference", [90, 100, 500]);

test("a goal is met at its limit and not beyond", () => {
  const met = (row: { readonly met?: boolean }) => row.met;
  expect(met(speedupRow({ what: "", ours, other, goal: { atLeast: 10 } }))).toBe(true);
  expect(met(speedupRow({ what: "", ours, other, goal: { atLeast: 10.1 } }))).toBe(false);
  expect(met(ratioRow({ what: "", ours: other, other: ours, goal: { atMost: 10 } }))).toBe(true);
  expect(met(ratioRow({ what: "", ours: other, other: ours, goal: { atMost: 9.9 } }))).toBe(false);
  expect(met(plainRow({ what: "", ours, goal: { atMost: 9 } }))).toBe(false);
  expect(met(plainRow({ what: "", ours: summarize("cni", []), goal: { atMost: 9 } }))).toBe(false);
  expect(met(differenceRow({ what: "", ours, other }))).toBeUndefined();
});

test("the table says what was measured, against what, and whether that is enough", () => {
  const rows = [
    speedupRow({ what: "Something", ours, other, goal: { atLeast: 20 } }),
    missingRow("The floor", "no compiler"),
  ];
  expect(formatMarkdown([{ name: "one", rows }]).split("\n").map((line) => line.replaceAll(/ +/g, " "))).toEqual([
    "| what | cni | against | | goal | |",
    expect.stringMatching(/^[| -]+$/),
    "| Something | 10.0 ms | 100 ms reference | 10.0 × as fast | ≥ 20 × | **not met** |",
    "| The floor | | | no compiler | | |",
  ]);
});

test("numbers have three digits", () => {
  expect([0.5, 7.249, 43.44, 190.4, 29355, NaN].map(formatNumber)).toEqual([
    "0.50",
    "7.25",
    "43.4",
    "190",
    "29355",
    "–",
  ]);
});

test("percentile takes a value that was measured", () => {
  const values = Array.from({ length: 100 }, (_, at) => 100 - at);
  expect([0, 0.5, 0.99, 1].map((fraction) => percentile(values, fraction))).toEqual([1, 51, 100, 100]);
  expect(percentile([], 0.5)).toBeNaN();
});

test("interleave runs the sides in turn and forgets the first rounds", () => {
  const order: string[] = [];
  const side = (name: string) => (round: number) => {
    order.push(name);
    return round;
  };
  const both = (round: number) => ({ add: round, del: -round });
  expect(interleave(2, { a: side("a"), b: side("b"), both }, { warmUp: 1 })).toEqual({
    a: [1, 2],
    b: [1, 2],
    "both.add": [1, 2],
    "both.del": [-1, -2],
  });
  expect(order.join("")).toBe("ababab");
});
