import { printable } from "../../spec/printable.ts";
import type { Screen, Style } from "./screen.ts";

const GAP = 2;
// So much of an id names it.
const SHORT_WIDTH = 12;

// Columns whose cells may be cut, and the part that stays: the begin of an id names it, and the end of a path.
const KEPT_PARTS: Readonly<Record<string, "begin" | "end">> = { CONTAINER: "begin", FILE: "end", NAMESPACE: "end" };

// Left out where no row has a value: only engines name containers.
const OPTIONAL_COLUMN = "NAME";

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
 * Shows `-` for an empty cell, and no control characters of other programs. Until lines fit, it gives up in this order:
 * whole ids and paths, cells in one line, empty columns, columns of paths, rows.
 *
 * @param styleOfCell for cells below the header
 */
export function formatTable(
  header: readonly string[],
  rows: readonly (readonly string[])[],
  screen?: Screen,
  styleOfCell: CellStyle = () => undefined,
): string {
  const style = (text: string, name: Style | undefined) => name ? screen?.style(name, text) ?? text : text;
  const columns = header.map((title, i): Column => ({
    title,
    cells: rows.map((row) => printable(row[i]!)),
    style: (cell) => style(cell, styleOfCell(cell, i)),
    titleStyle: (text) => style(text, "bold"),
  })).filter(({ title, cells }) => title !== OPTIONAL_COLUMN || cells.some((cell) => cell !== ""));
  const filled = columns.filter(({ cells }) => cells.some((cell) => cell !== ""));
  const width = screen?.columns ?? Infinity;
  const withoutPaths = filled.filter(({ title }) => KEPT_PARTS[title] !== "end");
  const lines = tableLines(columns, width) ?? tableLines(filled, width) ?? tableLines(withoutPaths, width) ??
    blockLines(columns, width);
  return lines.map((line) => `${line}\n`).join("");
}

interface Column {
  readonly title: string;
  readonly cells: readonly string[];
  style(cell: string): string;
  titleStyle(text: string): string;
}

function tableLines(columns: readonly Column[], width: number): string[] | undefined {
  if (columns.length === 0) return undefined;
  const titles = columns.map(({ title }) => title);
  const rows = [titles, ...rowsOf(columns).map((row) => row.map((cell) => cell || "-"))];
  const widths = fittingWidths(titles, rows, width);
  if (!widths) return undefined;
  const grid = rows.map((row) => linesOfRow(row, widths, titles));
  const isHeader = grid.flatMap((lines, row) => lines.map(() => row === 0));
  return alignColumns(grid.flat(), (cell, line, i) => {
    const { style, titleStyle } = columns[i]!;
    return isHeader[line] ? titleStyle(cell) : style(cell);
  });
}

function rowsOf(columns: readonly Column[]): string[][] {
  return columns[0]!.cells.map((_, row) => columns.map(({ cells }) => cells[row]!));
}

function fittingWidths(
  titles: readonly string[],
  rows: readonly (readonly string[])[],
  maxWidth: number,
): number[] | undefined {
  const widths = columnWidths(rows);
  const isCut = titles.map((title) => title in KEPT_PARTS);
  const whole = columnWidths(rows.map((row) => row.map(longestWord)));
  const cut = widths.map((width, i) => isCut[i] ? Math.min(width, SHORT_WIDTH) : width);
  const narrowest = whole.map((width, i) => isCut[i] ? cut[i]! : width);
  return narrowed(widths, cut, maxWidth) ?? narrowed(cut, narrowest, maxWidth);
}

function narrowed(from: readonly number[], needed: readonly number[], maxWidth: number): number[] | undefined {
  const widths = [...from];
  while (widths.reduce((sum, width) => sum + width + GAP, -GAP) > maxWidth) {
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

function linesOfRow(row: readonly string[], widths: readonly number[], titles: readonly string[]): string[][] {
  const cells = row.map((cell, i) => {
    if (Bun.stringWidth(cell) <= widths[i]!) return [cell];
    const part = KEPT_PARTS[titles[i]!];
    return part ? [cutText(cell, widths[i]!, part)] : Bun.wrapAnsi(spaced(cell), widths[i]!).split("\n");
  });
  const height = Math.max(...cells.map((lines) => lines.length));
  return Array.from({ length: height }, (_, i) => cells.map((lines) => lines[i] ?? ""));
}

function cutText(cell: string, width: number, kept: "begin" | "end"): string {
  const characters = [...cell];
  while (Bun.stringWidth(characters.join("")) >= width) {
    if (kept === "begin") characters.pop();
    else characters.shift();
  }
  return kept === "begin" ? `${characters.join("")}…` : `…${characters.join("")}`;
}

function blockLines(columns: readonly Column[], width: number): string[] {
  if (columns[0]!.cells.length === 0) return [columns.map(({ title, titleStyle }) => titleStyle(title)).join(" ")];
  const nameWidth = Math.max(...columns.map(({ title }) => Bun.stringWidth(title)));
  return rowsOf(columns).flatMap((row, i) => [
    ...i === 0 ? [] : [""],
    ...columns.flatMap(({ title, titleStyle, style }, column) =>
      row[column] === "" ? [] : pairLines(title, row[column]!, nameWidth, width, titleStyle, style)
    ),
  ]);
}

type TextStyle = (text: string) => string;

/** A value that does not fit goes on below; a long word stays whole, for copying. */
function pairLines(
  name: string,
  value: string,
  nameWidth: number,
  width: number,
  styleName: TextStyle = (text) => text,
  styleValue: TextStyle = (text) => text,
): string[] {
  const indent = nameWidth + GAP;
  const texts = width === Infinity ? [value] : Bun.wrapAnsi(value, Math.max(width - indent, SHORT_WIDTH)).split("\n");
  return texts.map((text, i) => {
    const before = i === 0 ? styleName(name) + " ".repeat(indent - Bun.stringWidth(name)) : " ".repeat(indent);
    return before + styleValue(text);
  });
}

export function formatPairs(pairs: readonly (readonly [name: string, value: string])[], width = Infinity): string[] {
  const nameWidth = Math.max(0, ...pairs.map(([name]) => Bun.stringWidth(name)));
  return pairs.flatMap(([name, value]) => pairLines(name, value, nameWidth, width));
}
