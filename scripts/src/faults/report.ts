import { markdownTable } from "../harness/markdown.ts";
import type { FaultReport } from "./fault_case.ts";

/** A table with a row for each group of faults that were reached, and for all. */
export function formatFaults(all: readonly FaultReport[], groupOf: (report: FaultReport) => string): string {
  const reports = all.filter(({ result }) => result !== "not reached");
  const results = ["ended", "succeeded", "refused", "FAILED"];
  const row = (name: string, group: readonly FaultReport[]) => {
    const counts = results.map((column) => group.filter(({ result }) => result === column).length);
    return [name, ...[group.length, ...counts].map(String)];
  };
  const groups = [...Map.groupBy(reports, groupOf)].map(([name, group]) => row(name, group)).sort();
  const header = ["fault", "tried", "ended, then removed", "succeeded", "refused and undone", "failed"];
  const survived = reports.filter(({ result }) => result !== "FAILED").length;
  const sums = `${reports.length} faults tried, ${survived} survived, ${all.length - reports.length} not reached`;
  return `${markdownTable(header, [...groups, row("all", reports)])}${sums}`;
}
