import { expect, test } from "bun:test";
import { percentile } from "../harness/statistics.ts";
import { interleave } from "./measure.ts";
import { countGoals, formatMarkdown, formatNumber, missingRow, row } from "./table.ts";

const ours = [9, 10, 11];
const other = [90, 100, 500];

test("a goal is met at its limit and not beyond", () => {
  expect(row("", "faster", ours, ["", other], { atLeast: 10 }).verdict).toBe("met");
  expect(row("", "faster", ours, ["", other], { atLeast: 10.1 }).verdict).toBe("**not met**");
  expect(row("", "times", other, ["", ours], { atMost: 10 }).verdict).toBe("met");
  expect(row("", "times", other, ["", ours], { atMost: 9.9 }).verdict).toBe("**not met**");
  expect(row("", "alone", ours, undefined, { atMost: 9 }).verdict).toBe("**not met**");
  expect(row("", "alone", [], undefined, { atMost: 9 }).verdict).toBe("**not met**");
  expect(row("", "more", ours, ["", other])).toMatchObject({ result: "-90.0 ms more", goal: "", verdict: "" });
});

test("goals that are met and missed are counted, rows without a goal are not", () => {
  const ends = [1, 10, 11].map((atLeast) => row("", "faster", ours, ["", other], { atLeast }));
  expect(countGoals([...ends, row("", "more", ours, ["", other]), missingRow("", "")])).toEqual({ met: 2, missed: 1 });
});

test("the tables say what was measured, against what, and whether that is enough", () => {
  const rows = [
    row("Something", "faster", ours, ["reference", other], { atLeast: 20 }),
    row("Alone", "alone", ours, undefined, { unit: "MiB" }),
    missingRow("The floor", "no compiler"),
  ];
  const lines = [
    { name: "cni run", points: [{ containers: 1, ms: 20 }, { containers: 10, ms: 21.04 }] },
    { name: "reference", points: [{ containers: 1, ms: 90 }] },
  ];
  const times = [{ what: "In the kernel", add: "2.00 ms", del: "3.00 ms" }];
  const text = formatMarkdown({ about: "here", rows, lines, remarks: ["not all"], times });
  expect(text.split("\n").map((line) => line.replaceAll(/ +/g, " ").replaceAll(/-+/g, "-"))).toEqual([
    "here:",
    "",
    "| what | cni | against | | goal | |",
    "| - | - | - | - | - | - |",
    "| Something | 10.0 ms | 100 ms reference | 10.0 × as fast | ≥ 20 × | **not met** |",
    "| Alone | 10.0 MiB | | 10.0 MiB | | |",
    "| The floor | | | no compiler | | |",
    "",
    "| the whole chain by `cni run`, served | ADD | DEL |",
    "| - | - | - |",
    "| In the kernel | 2.00 ms | 3.00 ms |",
    "",
    "| containers | 1 | 10 |",
    "| - | - | - |",
    "| ADD, cni run | 20.0 ms | 21.0 ms |",
    "| ADD, reference | 90.0 ms | – |",
    "",
    "- not all",
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
