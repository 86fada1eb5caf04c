import { expect, test } from "bun:test";
import { formatTable } from "./table.ts";

test("formatTable() aligns columns, and prints a dash for nothing", () => {
  expect(formatTable(["A", "LONG", "C"], [["one", "", "x"], ["1", "2", ""]])).toBe(
    "A    LONG  C\none  -     x\n1    2     -\n",
  );
  expect(formatTable(["A", "B"], [])).toBe("A  B\n");
});

test("formatTable() styles the header and cells, and aligns them as without", () => {
  const screen = { isTerminal: true, columns: undefined, style: (style: string, text: string) => `<${style} ${text}>` };
  const styleOfCell = (cell: string) => cell === "up" ? "green" as const : undefined;
  expect(formatTable(["A", "STATE", "B"], [["1", "up", "2"], ["1", "down", ""]], screen, styleOfCell)).toBe(
    "<bold A>  <bold STATE>  <bold B>\n1  <green up>     2\n1  down   -\n",
  );
});

test("formatTable() lets no cell break its line or steer the terminal", () => {
  expect(formatTable(["A"], [["x\n\u001b[2Jy\u009b"]])).toBe("A\nx??[2Jy?\n");
});

test("formatTable() shortens the widest columns on a narrow terminal, and counts wide characters twice", () => {
  const screen = { isTerminal: true, columns: 26, style: (_: unknown, text: string) => text };
  expect(formatTable(["NAME", "ADDRESS"], [["漢字", "10.22.0.2/16,fd00::2/64"]], screen)).toBe(
    "NAME  ADDRESS\n漢字  10.22.0.2/16,fd00::…\n",
  );
});
