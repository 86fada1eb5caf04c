/** The figures of a run. @module */
import { isSignal } from "./fault.ts";
import type { Tried } from "./experiment.ts";

const COLUMNS = ["ended", "succeeded", "refused", "FAILED"] as const;

/** A table with a row for each kind of fault, and one line at the end: N faults tried, N survived. */
export function summary(all: readonly Tried[]): string {
  const tried = all.filter(({ result }) => result !== "not reached");
  const kinds = [...new Set(tried.map(({ kind }) => kind))].sort((a, b) =>
    Number(isSignal(b)) - Number(isSignal(a)) || (a < b ? -1 : 1)
  );
  const row = (
    name: string,
    of: readonly Tried[],
  ) => [name, of.length, ...COLUMNS.map((column) => of.filter(({ result }) => result === column).length)];
  const rows = [
    ["fault", "tried", "ended, then removed", "got over", "refused and undone", "FAILED"],
    ...kinds.map((kind) => row(kind, tried.filter((each) => each.kind === kind))),
    row("all", tried),
  ];
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((each) => String(each[column]).length)));
  const lines = rows.map((each) =>
    each.map((cell, column) =>
      column === 0 ? String(cell).padEnd(widths[column]!) : String(cell).padStart(widths[column]!)
    ).join("  ")
  );
  const survived = tried.filter(({ result }) => result !== "FAILED").length;
  return [...lines, "", `${tried.length} faults tried, ${survived} survived, ${all.length - tried.length} not reached`]
    .join("\n");
}
