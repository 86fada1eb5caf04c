import type { RulesetChange } from "../../ffi/nft/ruleset_monitor.ts";
import { NFT_MSG_DELSETELEM } from "../../ffi/nft/uapi.ts";
import type { Owner } from "../../plugins/lib/protocol/owner.ts";
import { recordIds, recordIdsOf } from "./record_id.ts";

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
  /** When the record went; oldest first. */
  readonly #released = new Map<string, number>();

  /** Tells of a change by this program, in order. */
  note(change: RulesetChange): void {
    for (const id of recordIds(change)) {
      this.#released.delete(id);
      if (change.operation === NFT_MSG_DELSETELEM) this.#released.set(id, performance.now());
    }
    for (const id of this.#released.keys()) {
      if (this.#released.size <= MAX_RELEASED) return;
      this.#released.delete(id);
    }
  }

  has(owner: Owner): boolean {
    const since = performance.now() - DEL_TIME_MS;
    return recordIdsOf(owner).some((id) => (this.#released.get(id) ?? -Infinity) > since);
  }
}
