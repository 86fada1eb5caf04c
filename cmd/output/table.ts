export function alignColumns(rows: readonly (readonly string[])[]): string[] {
  const widths: number[] = [];
  for (const row of rows) row.forEach((cell, column) => widths[column] = Math.max(widths[column] ?? 0, cell.length));
  return rows.map((row) => row.map((cell, column) => cell.padEnd(widths[column]!)).join("  ").trimEnd());
}

/** For people: `-` for an empty cell, and no control characters of other programs. */
export function formatTable(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const cells = [header, ...rows].map((row) => row.map((cell) => cell.replace(/\p{Cc}/gu, "?") || "-"));
  return alignColumns(cells).map((line) => `${line}\n`).join("");
}
