/** Tables for people. @module */

/** Rows of cells, the first column to the left and the others to the right; the first row is the head. */
export function formatTable(rows: readonly (readonly (string | number)[])[]): string {
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => `${row[column]}`.length)));
  const pad = (cell: string | number, column: number) =>
    column === 0 ? `${cell}`.padEnd(widths[column]) : `${cell}`.padStart(widths[column]);
  return rows.map((row) => row.map(pad).join("  ")).join("\n");
}
