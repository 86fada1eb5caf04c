import type { RulesetChange } from "../../ffi/nft/ruleset_monitor.ts";
import { NFT_MSG_NEWSETELEM } from "../../ffi/nft/uapi.ts";
import type { Owner } from "../../plugins/lib/protocol/owner.ts";
import { RECORD_SET, recordKey } from "../../plugins/lib/ruleset/owner_records.ts";
import { TABLES } from "../../plugins/lib/ruleset/repair.ts";
import { isInOurTable } from "./ruleset_losses.ts";

/** An engine removes its result after the last plugin's DEL, which may wait for others. */
const DEL_TIME_MS = 10 * 60_000;
/** Beyond, the oldest are forgotten. */
const MAX_RELEASED = 20_000;

/**
 * Attachments that a DEL has begun to remove.
 *
 * An engine holds none of our locks, and its result stays until the DEL has ended. But the first plugin that removes
 * elements also removes their record.
 */
export class ReleasedAttachments {
  /** When the record went, by table and key; oldest first. */
  readonly #released = new Map<string, number>();

  /** Tells of a change by this program, in order. */
  note(change: RulesetChange): void {
    const { operation, family, name } = change;
    if (name !== RECORD_SET || !isInOurTable(change)) return;
    for (const key of change.keys()) {
      const id = recordId(family, key);
      this.#released.delete(id);
      if (operation !== NFT_MSG_NEWSETELEM) this.#released.set(id, performance.now());
    }
    if (this.#released.size > MAX_RELEASED) this.#released.delete(this.#released.keys().next().value!);
  }

  has(owner: Owner): boolean {
    const since = performance.now() - DEL_TIME_MS;
    return TABLES.some(({ family, purposes }) =>
      Object.keys(purposes).some((purpose) =>
        (this.#released.get(recordId(family, recordKey(owner, purpose).key)) ?? -Infinity) > since
      )
    );
  }
}

const recordId = (family: number, key: Uint8Array): string => `${family} ${key.toHex()}`;
