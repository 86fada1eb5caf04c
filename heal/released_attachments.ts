import type { RulesetChange } from "../ffi/nft/ruleset_monitor.ts";
import { NFT_MSG_DELSETELEM } from "../ffi/nft/uapi.ts";
import { type Owner, ownerText } from "../plugins/lib/model/owner.ts";
import { recordedOwners } from "./recorded_owners.ts";

/** An engine removes its result after the last plugin's DEL, which may wait for others. */
const DEL_TIME_MS = 10 * 60_000;
/** Beyond, the oldest changes of records are forgotten. */
const MAX_CHANGES = 20_000;

interface RecordChange {
  readonly isRemoval: boolean;
  readonly time: number;
}

/**
 * Attachments that a DEL has begun to remove.
 *
 * An engine holds none of our locks, and its result stays until the DEL has ended. But the first plugin that removes
 * elements also removes their record. A later ADD may need fewer records: any new one ends the DEL.
 */
export class ReleasedAttachments {
  /** The last change of each owner's records, oldest first. */
  readonly #changes = new Map<string, RecordChange>();

  /** Tells of a change by this program, in order. */
  note(change: RulesetChange): void {
    const isRemoval = change.operation === NFT_MSG_DELSETELEM;
    for (const owner of recordedOwners(change)) {
      this.#changes.delete(owner);
      this.#changes.set(owner, { isRemoval, time: performance.now() });
    }
    for (const owner of this.#changes.keys()) {
      if (this.#changes.size <= MAX_CHANGES) return;
      this.#changes.delete(owner);
    }
  }

  has(owner: Owner): boolean {
    const last = this.#changes.get(ownerText(owner));
    return last !== undefined && last.isRemoval && last.time > performance.now() - DEL_TIME_MS;
  }
}
