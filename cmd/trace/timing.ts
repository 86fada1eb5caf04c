import type { TraceEvent, TraceKind } from "../../inspect/effects/trace_event.ts";
import type { Screen } from "../output/screen.ts";
import { formatTable } from "../output/table.ts";

// Columns of the table. What is left is the program's own work.
const KINDS: readonly TraceKind[] = ["netlink", "nft", "file", "sysctl", "dbus", "socket", "program", "wait"];

interface Sums {
  total: number;
  readonly byKind: Map<TraceKind, number>;
}

/** A row leaves out the plugins that its plugin calls; the sum of rows is the time of the call. */
export function formatTiming(root: TraceEvent, startUpMs: number, screen: Screen): string {
  const rows = new Map<string, Sums>();
  addTimes(rows, root, sumsOf(rows, "runtime"));
  const used = KINDS.filter((kind) => [...rows.values()].some(({ byKind }) => byKind.has(kind)));
  const total: Sums = { total: root.ms, byKind: new Map() };
  for (const { byKind } of rows.values()) for (const [kind, ms] of byKind) add(total.byKind, kind, ms);
  const toCells = (name: string, { total, byKind }: Sums) => {
    const times = used.map((kind) => byKind.get(kind) ?? 0);
    const rest = total - times.reduce((sum, ms) => sum + ms, 0);
    return [name, ...[total, ...times, Math.max(0, rest)].map((ms) => ms.toFixed(2))];
  };
  return formatTable(
    ["PLUGIN (ms)", "TOTAL", ...used.map((kind) => kind.toUpperCase()), "OWN WORK"],
    [
      ["start-up", startUpMs.toFixed(2), ...used.map(() => ""), ""],
      ...[...rows].map(([name, sums]) => toCells(name, sums)),
      toCells("all", total),
    ],
    screen,
  );
}

function sumsOf(rows: Map<string, Sums>, name: string): Sums {
  const sums = rows.get(name) ?? { total: 0, byKind: new Map() };
  rows.set(name, sums);
  return sums;
}

const add = (sums: Map<TraceKind, number>, kind: TraceKind, ms: number) => sums.set(kind, (sums.get(kind) ?? 0) + ms);

/** Plugins inside the event have times of their own. */
function addTimes(rows: Map<string, Sums>, event: TraceEvent, sums: Sums): void {
  sums.total += event.ms;
  addChildren(rows, event, sums, false);
}

/** @param isCounted whether an outer event has the time already, as a request its wait */
function addChildren(rows: Map<string, Sums>, { children }: TraceEvent, sums: Sums, isCounted: boolean): void {
  for (const child of children) {
    if (isPlugin(child)) {
      sums.total -= child.ms;
      addTimes(rows, child, sumsOf(rows, child.name));
      continue;
    }
    const counts = KINDS.includes(child.kind) && !isCounted;
    if (counts) add(sums.byKind, child.kind, child.ms);
    addChildren(rows, child, sums, isCounted || counts);
  }
}

/** A DEL that undoes an ADD counts too, and has parameters. */
function isPlugin({ kind, details }: TraceEvent): boolean {
  return kind === "plugin" || (kind === "undo" && details.length > 0);
}
