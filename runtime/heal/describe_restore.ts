import type { Committer } from "../../ffi/nft/ruleset_monitor.ts";
import type { RestoredAttachment, RestoreReport } from "../restore.ts";

const MAX_LISTED = 6;

/** What was put back, in one line; `undefined` if nothing was missing. */
export function describeRestore(reports: readonly RestoreReport[], causes: readonly string[]): string | undefined {
  const restored = reports.flatMap(({ attachments }) => attachments.filter((each) => restoredItems(each).length > 0));
  const items = [...new Set([...reports.flatMap(({ tables }) => tables), ...restored.flatMap(restoredItems)])];
  if (items.length === 0) return undefined;
  const listed = items.slice(0, MAX_LISTED).join(", ");
  const others = items.length > MAX_LISTED ? ` and ${items.length - MAX_LISTED} more` : "";
  const owners = restored.length === 0
    ? "that all attachments share"
    : `of ${restored.length} attachment${restored.length === 1 ? "" : "s"}`;
  return `Restored rules ${owners} after ${causes.join(" and ")}: ${listed}${others}`;
}

const restoredItems = ({ plugins }: RestoredAttachment): string[] => plugins.flatMap(({ restored }) => restored);

/** `changes by "iptables" (process 4711, 4712)` */
export function describeCommitters(committers: readonly Committer[]): string[] {
  return [...Map.groupBy(committers, ({ program }) => program)].map(([program, some]) => {
    const pids = [...new Set(some.map(({ pid }) => pid))];
    const listed = pids.slice(0, MAX_LISTED).join(", ");
    return `changes by ${JSON.stringify(program)} (process ${listed}${pids.length > MAX_LISTED ? ", …" : ""})`;
  });
}
