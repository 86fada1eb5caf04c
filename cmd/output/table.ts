import type { Screen } from "./screen.ts";

const GAP = 2;
/** A column is not made narrower. */
const MIN_WIDTH = 8;

export function alignColumns(rows: readonly (readonly string[])[]): string[] {
  const widths = columnWidths(rows);
  return rows.map((row) => row.map((cell, column) => padCell(cell, widths[column]!)).join(" ".repeat(GAP)).trimEnd());
}

/**
 * For people: `-` for an empty cell, and no control characters of other programs.
 *
 * @param screen where it is shown: the widest columns are shortened until lines fit
 */
export function formatTable(
  header: readonly string[],
  rows: readonly (readonly string[])[],
  screen?: Screen,
): string {
  const cells = [header, ...rows].map((row) => row.map((cell) => cell.replace(/\p{Cc}/gu, "?") || "-"));
  const [first = "", ...rest] = alignColumns(screen?.columns === undefined ? cells : fitted(cells, screen.columns));
  return [screen?.style("bold", first) ?? first, ...rest].map((line) => `${line}\n`).join("");
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

const padCell = (cell: string, width: number): string => cell + " ".repeat(width - Bun.stringWidth(cell));
