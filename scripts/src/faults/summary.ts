/** The figures of a run. @module */
import { isSignal } from "./fault.ts";
import { formatTable } from "../../../cmd/output/table.ts";
import type { FaultReport } from "./experiment.ts";

const COLUMNS = ["ended", "succeeded", "refused", "FAILED"] as const;

/** A table with a row for each kind of fault, and one line at the end: N faults tried, N survived. */
export function formatSummary(all: readonly FaultReport[]): string {
  const reports = all.filter(({ result }) => result !== "not reached");
  const kinds = [...new Set(reports.map(({ kind }) => kind))].sort((a, b) =>
    Number(isSignal(b)) - Number(isSignal(a)) || (a < b ? -1 : 1)
  );
  const row = (name: string, group: readonly FaultReport[]) => [
    name,
    ...[group, ...COLUMNS.map((column) => group.filter(({ result }) => result === column))].map(({ length }) =>
      `${length}`
    ),
  ];
  const header = ["fault", "tried", "ended, then removed", "succeeded", "refused and undone", "FAILED"];
  const rows = [
    ...kinds.map((kind) => row(kind, reports.filter((report) => report.kind === kind))),
    row("all", reports),
  ];
  const survived = reports.filter(({ result }) => result !== "FAILED").length;
  const notReached = all.length - reports.length;
  return `${
    formatTable(header, rows)
  }\n${reports.length} faults tried, ${survived} survived, ${notReached} not reached`;
}
