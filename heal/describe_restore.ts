import type { Committer } from "../ffi/nft/ruleset_monitor.ts";
import { describeAttachment } from "../runtime/resolve_attachment.ts";
import type { RestoredAttachment, RestoreReport } from "../runtime/restore.ts";
import type { CopiedRestore } from "./copied_restore.ts";

const MAX_LISTED = 6;

export interface Restored {
  readonly report: RestoreReport;
  readonly copied: CopiedRestore;
}

/** One line; `undefined` if nothing was missing. */
export function describeRestore(restored: readonly Restored[], causes: readonly string[]): string | undefined {
  const reports = restored.flatMap(({ report, copied }) => copied.report ? [copied.report, report] : [report]);
  const byPlugins = reports.flatMap(({ attachments }) => attachments.filter((each) => restoredItems(each).length > 0));
  const owners = new Set([...byPlugins, ...restored.flatMap(({ copied }) => copied.entries)].map(describeAttachment));
  const items = [
    ...new Set([
      ...reports.flatMap(({ tables }) => tables),
      ...byPlugins.flatMap(restoredItems),
      ...restored.flatMap(({ copied }) => [...copied.sets].map((set) => `elements of "${set}"`)),
    ]),
  ];
  if (items.length === 0) return undefined;
  const listed = items.slice(0, MAX_LISTED).join(", ");
  const others = items.length > MAX_LISTED ? ` and ${items.length - MAX_LISTED} more` : "";
  const subject = owners.size === 0
    ? "that all attachments share"
    : `of ${owners.size} attachment${owners.size === 1 ? "" : "s"}`;
  return `Restored rules ${subject} after ${causes.join(" and ")}: ${listed}${others}`;
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
