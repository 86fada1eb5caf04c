/**
 * Tables for people.
 *
 * @module
 */

/** Columns as wide as they must be, two spaces between them; an empty cell is a dash. What others wrote cannot steer the terminal. */
export function formatTable(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [header, ...rows].map((row) => row.map((cell) => cell.replace(/\p{Cc}/gu, "?") || "-"));
  const widths = header.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  return lines.map((line) => `${line.map((cell, column) => cell.padEnd(widths[column]!)).join("  ").trimEnd()}\n`).join(
    "",
  );
}
