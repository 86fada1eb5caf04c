/** Names of records of owners' elements, see plugins/lib/ruleset/owner_records.ts. @module */
import type { RulesetChange } from "../ffi/nft/ruleset_monitor.ts";
import type { Owner } from "../plugins/lib/model/owner.ts";
import { RECORD_SET, recordKey } from "../plugins/lib/ruleset/owner_records.ts";
import { TABLES } from "../plugins/lib/ruleset/repair.ts";

export function recordIds(change: RulesetChange): string[] {
  const { family, name, table } = change;
  const isRecord = name === RECORD_SET && TABLES.some((own) => own.table === table && own.family === family);
  return isRecord ? change.elements().map(({ key }) => recordId(family, key)) : [];
}

export function recordIdsOf(owner: Owner): string[] {
  return TABLES.flatMap(({ family, purposes }) =>
    Object.keys(purposes).map((purpose) => recordId(family, recordKey(owner, purpose).key))
  );
}

const recordId = (family: number, key: Uint8Array): string => `${family} ${key.toHex()}`;
