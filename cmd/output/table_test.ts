import { expect, test } from "bun:test";
import type { Screen } from "./screen.ts";
import { formatPairs, formatTable } from "./table.ts";

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

const terminal = (columns: number): Screen => ({ isTerminal: true, columns, style: (_, text) => text });
const HEADER = ["CONTAINER", "ADDRESSES", "REASON"];
const ROWS = [["0123456789abcdef", "10.22.0.2/16,fd00::2/64", 'namespace "x" is gone'], ["漢字", "10.22.0.3/16", ""]];

test("formatTable() fits a terminal: ids are cut before a cell goes on in the next line", () => {
  const table = (columns: number) => formatTable(HEADER, ROWS, terminal(columns));
  expect(table(64)).toBe(formatTable(HEADER, ROWS));
  expect(table(60)).toBe(`\
CONTAINER     ADDRESSES                REASON
0123456789a…  10.22.0.2/16,fd00::2/64  namespace "x" is gone
漢字          10.22.0.3/16             -
`);
  expect(table(40)).toBe(`\
CONTAINER     ADDRESSES      REASON
0123456789a…  10.22.0.2/16,  namespace
              fd00::2/64     "x" is gone
漢字          10.22.0.3/16   -
`);
});

test("formatTable() cuts paths at their begin, and leaves them out before it prints blocks", () => {
  const table = (columns: number) =>
    formatTable(["NETWORK", "FILE"], [["containers-of-the-lan", "/etc/cni/net.d/10-lan.conflist"]], terminal(columns));
  expect(table(44)).toBe("NETWORK                FILE\ncontainers-of-the-lan  …et.d/10-lan.conflist\n");
  expect(table(22)).toBe("NETWORK\ncontainers-of-the-lan\n");
});

test("formatTable() prints a block for each row where a table has no room, and cuts nothing", () => {
  expect(formatTable(HEADER, ROWS, terminal(30))).toBe(`\
CONTAINER  0123456789abcdef
ADDRESSES  10.22.0.2/16,fd00::2/64
REASON     namespace "x" is
           gone

CONTAINER  漢字
ADDRESSES  10.22.0.3/16
`);
  expect(formatTable(HEADER, [], terminal(12))).toBe("CONTAINER ADDRESSES REASON\n");
});

test("formatTable() leaves out empty columns before it prints blocks", () => {
  const rows = ROWS.map(([id, addresses]) => [id!, addresses!, ""]);
  expect(formatTable(HEADER, rows, terminal(32))).toBe(`\
CONTAINER     ADDRESSES
0123456789a…  10.22.0.2/16,
              fd00::2/64
漢字          10.22.0.3/16
`);
});

test("formatPairs() puts values into lines of a width, and keeps words whole", () => {
  const pairs = [["type", "list of range sets"], ["default", "/a/very/long/path/of/a/file"]] as const;
  expect(formatPairs(pairs)).toEqual(["type     list of range sets", "default  /a/very/long/path/of/a/file"]);
  expect(formatPairs(pairs, 22)).toEqual([
    "type     list of range",
    "         sets",
    "default  /a/very/long/path/of/a/file",
  ]);
});
