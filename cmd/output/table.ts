import { printable } from "./printable.ts";
import type { Screen, Style } from "./screen.ts";

const GAP = 2;
/** Enough of an id to name it. */
const SHORT_WIDTH = 12;

/** @param styled shown in place of a cell, and as wide */
export function alignColumns(
  rows: readonly (readonly string[])[],
  styled: (cell: string, row: number, column: number) => string = (cell) => cell,
): string[] {
  const widths = columnWidths(rows);
  return rows.map((row, i) =>
    row.map((cell, column) => styled(cell, i, column) + " ".repeat(widths[column]! - Bun.stringWidth(cell)))
      .join(" ".repeat(GAP)).trimEnd()
  );
}

type CellStyle = (cell: string, column: number) => Style | undefined;

/**
 * For people: `-` for an empty cell, and no control characters of other programs.
 *
 * @param screen where it is shown: cells go on in a further line until lines fit; if none can, rows become blocks
 * @param styleOfCell for cells below the header
 * @param shortened titles of columns whose cells may end with `…`
 */
export function formatTable(
  header: readonly string[],
  rows: readonly (readonly string[])[],
  screen?: Screen,
  styleOfCell: CellStyle = () => undefined,
  shortened: readonly string[] = [],
): string {
  const cells = rows.map((row) => row.map(printable));
  const withDashes = [header, ...cells].map((row) => row.map((cell) => cell || "-"));
  const isShortened = header.map((title) => shortened.includes(title));
  const widths = screen?.columns === undefined
    ? columnWidths(withDashes)
    : fittingWidths(withDashes, isShortened, screen.columns);
  const style = (text: string, name: Style | undefined) => name ? screen?.style(name, text) ?? text : text;
  if (!widths) return formatBlocks(header, cells, screen!.columns!, style, styleOfCell);
  const grid = withDashes.map((row) => tableLines(row, widths, isShortened));
  const isHeader = grid.flatMap((lines, row) => lines.map(() => row === 0));
  const styled = (cell: string, line: number, column: number) =>
    style(cell, isHeader[line] ? "bold" : styleOfCell(cell, column));
  return alignColumns(grid.flat(), styled).map((line) => `${line}\n`).join("");
}

/** `undefined` if lines cannot be so short. */
function fittingWidths(
  rows: readonly (readonly string[])[],
  isShortened: readonly boolean[],
  columns: number,
): number[] | undefined {
  const widths = columnWidths(rows);
  const needed = columnWidths(
    rows.map((row) => row.map((cell, i) => isShortened[i] ? cell.slice(0, SHORT_WIDTH) : longestWord(cell))),
  );
  while (widths.reduce((sum, width) => sum + width + GAP, -GAP) > columns) {
    const widest = Math.max(...widths.filter((width, i) => width > needed[i]!));
    if (widest < 0) return undefined;
    widths[widths.findIndex((width, i) => width === widest && width > needed[i]!)]!--;
  }
  return widths;
}

function columnWidths(rows: readonly (readonly string[])[]): number[] {
  const widths: number[] = [];
  for (const row of rows) {
    row.forEach((cell, column) => widths[column] = Math.max(widths[column] ?? 0, Bun.stringWidth(cell)));
  }
  return widths;
}

/** Lines may also end behind a comma. */
const spaced = (cell: string): string => cell.replace(/,(?=\S)/g, ", ");

function longestWord(cell: string): string {
  const words = spaced(cell).split(" ");
  return words.reduce((longest, word) => Bun.stringWidth(word) > Bun.stringWidth(longest) ? word : longest);
}

/** The lines of one row. */
function tableLines(row: readonly string[], widths: readonly number[], isShortened: readonly boolean[]): string[][] {
  const cells = row.map((cell, i) => {
    if (Bun.stringWidth(cell) <= widths[i]!) return [cell];
    return isShortened[i] ? [shortenedText(cell, widths[i]!)] : Bun.wrapAnsi(spaced(cell), widths[i]!).split("\n");
  });
  const height = Math.max(...cells.map((lines) => lines.length));
  return Array.from({ length: height }, (_, i) => cells.map((lines) => lines[i] ?? ""));
}

function shortenedText(cell: string, width: number): string {
  const characters = [...cell];
  while (Bun.stringWidth(characters.join("")) >= width) characters.pop();
  return `${characters.join("")}…`;
}

/** `NAME  value` for each cell that is not empty. Words are whole: the terminal wraps what is longer than a line. */
function formatBlocks(
  header: readonly string[],
  rows: readonly (readonly string[])[],
  columns: number,
  style: (text: string, name: Style | undefined) => string,
  styleOfCell: CellStyle,
): string {
  if (rows.length === 0) return `${Bun.wrapAnsi(header.map((title) => style(title, "bold")).join(" "), columns)}\n`;
  const indent = Math.max(...header.map((title) => Bun.stringWidth(title))) + GAP;
  const blocks = rows.map((row) =>
    row.flatMap((cell, i) => {
      if (cell === "") return [];
      const lines = Bun.wrapAnsi(cell, Math.max(columns - indent, SHORT_WIDTH)).split("\n");
      const padding = " ".repeat(indent - Bun.stringWidth(header[i]!));
      return lines.map((line, at) =>
        `${at === 0 ? style(header[i]!, "bold") + padding : " ".repeat(indent)}${style(line, styleOfCell(cell, i))}\n`
      );
    }).join("")
  );
  return blocks.join("\n");
}
