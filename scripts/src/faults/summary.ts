/** The figures of a run. @module */
import { isSignal } from "./fault.ts";
import { formatTable } from "../harness/table.ts";
import type { FaultReport } from "./experiment.ts";

const COLUMNS = ["ended", "succeeded", "refused", "FAILED"] as const;

/** A table with a row for each kind of fault, and one line at the end: N faults tried, N survived. */
export function formatSummary(all: readonly FaultReport[]): string {
  const reports = all.filter(({ result }) => result !== "not reached");
  const kinds = [...new Set(reports.map(({ kind }) => kind))].sort((a, b) =>
    Number(isSignal(b)) - Number(isSignal(a)) || (a < b ? -1 : 1)
  );
  const row = (
    name: string,
    of: readonly FaultReport[],
  ) => [name, of.length, ...COLUMNS.map((column) => of.filter(({ result }) => result === column).length)];
  const rows = [
    ["fault", "tried", "ended, then removed", "got over", "refused and undone", "FAILED"],
    ...kinds.map((kind) => row(kind, reports.filter((report) => report.kind === kind))),
    row("all", reports),
  ];
  const survived = reports.filter(({ result }) => result !== "FAILED").length;
  const notReached = all.length - reports.length;
  return `${formatTable(rows)}\n\n${reports.length} faults tried, ${survived} survived, ${notReached} not reached`;
}
