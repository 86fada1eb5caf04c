import { expect, test } from "bun:test";
import { formatTable } from "./table.ts";

test("formatTable() aligns columns, and prints a dash for nothing", () => {
  expect(formatTable(["A", "LONG", "C"], [["one", "", "x"], ["1", "2", ""]])).toBe(
    "A    LONG  C\none  -     x\n1    2     -\n",
  );
  expect(formatTable(["A", "B"], [])).toBe("A  B\n");
});

test("formatTable() lets no cell break its line or steer the terminal", () => {
  expect(formatTable(["A"], [["x\n\u001b[2Jy\u009b"]])).toBe("A\nx??[2Jy?\n");
});
