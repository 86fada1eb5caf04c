import type { RulesetChange } from "../ffi/nft/ruleset_monitor.ts";
import { NFT_MSG_DELSETELEM } from "../ffi/nft/uapi.ts";
import type { Owner } from "../plugins/lib/model/owner.ts";
import { recordIds, recordIdsOf } from "./record_id.ts";

/** An engine removes its result after the last plugin's DEL, which may wait for others. */
const DEL_TIME_MS = 10 * 60_000;
/** Beyond, the oldest changes of records are forgotten. */
const MAX_CHANGES = 20_000;

interface RecordChange {
  readonly isRemoval: boolean;
  readonly time: number;
  /** Several changes may have one time. */
  readonly number: number;
}

/**
 * Attachments that a DEL has begun to remove.
 *
 * An engine holds none of our locks, and its result stays until the DEL has ended. But the first plugin that removes
 * elements also removes their record. A later ADD may need fewer records: any new one ends the DEL.
 */
export class ReleasedAttachments {
  /** The last change of each record, oldest first. */
  readonly #changes = new Map<string, RecordChange>();
  #number = 0;

  /** Tells of a change by this program, in order. */
  note(change: RulesetChange): void {
    const isRemoval = change.operation === NFT_MSG_DELSETELEM;
    for (const id of recordIds(change)) {
      this.#changes.delete(id);
      this.#changes.set(id, { isRemoval, time: performance.now(), number: this.#number++ });
    }
    for (const id of this.#changes.keys()) {
      if (this.#changes.size <= MAX_CHANGES) return;
      this.#changes.delete(id);
    }
  }

  has(owner: Owner): boolean {
    const changes = recordIdsOf(owner).flatMap((id) => this.#changes.get(id) ?? []);
    const last = changes.sort((a, b) => a.number - b.number).at(-1);
    return last !== undefined && last.isRemoval && last.time > performance.now() - DEL_TIME_MS;
  }
}
