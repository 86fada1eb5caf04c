import type { RulesetChange } from "../ffi/nft/ruleset_monitor.ts";
import { ownerText, parseOwner } from "../plugins/lib/model/owner.ts";
import { RECORD_SET } from "../plugins/lib/ruleset/owner_records.ts";
import { isInOurTable } from "./possible_losses.ts";

/** Whose records a change adds or removes, by {@linkcode ownerText}; see plugins/lib/ruleset/owner_records.ts. */
export function recordedOwners(change: RulesetChange): string[] {
  if (change.name !== RECORD_SET || !isInOurTable(change)) return [];
  return change.elements().flatMap(({ comment = "" }) => {
    const owner = parseOwner(comment);
    return owner ? [ownerText(owner)] : [];
  });
}
