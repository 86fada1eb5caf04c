/** Text in columns. @module */

/** A line per row; columns are as wide as needed, with two spaces between them. */
export function alignColumns(rows: readonly (readonly string[])[]): string[] {
  const widths: number[] = [];
  for (const row of rows) row.forEach((cell, column) => widths[column] = Math.max(widths[column] ?? 0, cell.length));
  return rows.map((row) => row.map((cell, column) => cell.padEnd(widths[column]!)).join("  ").trimEnd());
}

/** A table for people: `-` for an empty cell, and no control characters from other programs. */
export function formatTable(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const cells = [header, ...rows].map((row) => row.map((cell) => cell.replace(/\p{Cc}/gu, "?") || "-"));
  return alignColumns(cells).map((line) => `${line}\n`).join("");
}
