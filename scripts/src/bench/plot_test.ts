import { expect, test } from "bun:test";
import { plot } from "./plot.ts";

const text = { title: "Cost & containers", subtitle: "here", remarks: ["<none>"] };
const line = (name: string, values: readonly number[]) => ({
  name,
  points: values.map((ms, at) => ({ containers: 10 ** at, ms, values: 3 })),
});
const drawing = plot([line("ours", [20, 21, 20, 22]), line("theirs", [90, 120, 300, 950]), line("neither", [])], text);

test("every point is drawn inside, and no line without points", () => {
  const lines = [...drawing.matchAll(/<polyline [^>]*points="([^"]+)"/g)].map(([, points]) =>
    points.split(" ").map((point) => point.split(",").map(Number))
  );
  expect(lines.map((line) => line.length)).toEqual([4, 4]);
  for (const [x, y] of lines.flat()) {
    expect(x >= 64 && x <= 600 && y >= 64 && y <= 340).toBe(true);
  }
  // More milliseconds are higher up, more containers further right.
  expect(lines[1][3][1]).toBeLessThan(lines[1][0][1]);
  expect(lines[1][3][0]).toBeGreaterThan(lines[1][0][0]);
});

test("labels are apart from each other and their text is escaped", () => {
  const close = plot([line("a", [20, 20]), line("b", [20, 20.1])], text);
  const heights = [...close.matchAll(/<text class="mark\d" x="[^"]+" y="([^"]+)"/g)].map(([, y]) => Number(y));
  expect(Math.abs(heights[0] - heights[1])).toBeGreaterThanOrEqual(16);
  expect(drawing).toContain("Cost &amp; containers");
  expect(drawing).toContain("&lt;none&gt;");
});
