import { printable } from "./printable.ts";
import type { Screen, Style } from "./screen.ts";

const GAP = 2;
/** A column is not made narrower. */
const MIN_WIDTH = 8;

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

/**
 * For people: `-` for an empty cell, and no control characters of other programs.
 *
 * @param screen where it is shown: the widest columns are shortened until lines fit
 * @param styleOfCell for cells below the header
 */
export function formatTable(
  header: readonly string[],
  rows: readonly (readonly string[])[],
  screen?: Screen,
  styleOfCell: (cell: string, column: number) => Style | undefined = () => undefined,
): string {
  const cells = [header, ...rows].map((row) => row.map((cell) => printable(cell) || "-"));
  const styled = (cell: string, row: number, column: number) => {
    const style = row === 0 ? "bold" : styleOfCell(cells[row]![column]!, column);
    return style ? screen?.style(style, cell) ?? cell : cell;
  };
  const lines = alignColumns(screen?.columns === undefined ? cells : fitted(cells, screen.columns), styled);
  return lines.map((line) => `${line}\n`).join("");
}

function fitted(rows: readonly (readonly string[])[], columns: number): string[][] {
  const widths = columnWidths(rows);
  const isTooWide = () => widths.reduce((sum, width) => sum + width + GAP, -GAP) > columns;
  while (isTooWide() && Math.max(...widths) > MIN_WIDTH) widths[widths.indexOf(Math.max(...widths))]!--;
  return rows.map((row) => row.map((cell, column) => shortened(cell, widths[column]!)));
}

function columnWidths(rows: readonly (readonly string[])[]): number[] {
  const widths: number[] = [];
  for (const row of rows) {
    row.forEach((cell, column) => widths[column] = Math.max(widths[column] ?? 0, Bun.stringWidth(cell)));
  }
  return widths;
}

function shortened(cell: string, width: number): string {
  if (Bun.stringWidth(cell) <= width) return cell;
  const characters = [...cell];
  while (Bun.stringWidth(characters.join("")) >= width) characters.pop();
  return `${characters.join("")}…`;
}
