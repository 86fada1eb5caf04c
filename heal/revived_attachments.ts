import type { RulesetChange } from "../ffi/nft/ruleset_monitor.ts";
import { NFT_MSG_NEWSETELEM } from "../ffi/nft/uapi.ts";
import { listElements } from "../ffi/nft/objects.ts";
import { RECORD_SET } from "../plugins/lib/ruleset/owner_records.ts";
import { TABLES } from "../plugins/lib/ruleset/repair.ts";
import { type Owner, ownerText, parseOwner, sameOwner } from "../plugins/lib/model/owner.ts";
import { runAllSteps } from "../plugins/lib/protocol/plugin.ts";

import { CniError } from "../spec/error.ts";
import { type CacheEntry, findEntryAgain } from "../runtime/cache.ts";
import { callPlugin, locatePlugin } from "../runtime/call_plugin.ts";
import type { RuntimeContext } from "../runtime/context.ts";
import { lockContainer } from "../runtime/lock.ts";
import { findCachedResult, resolveAttachment } from "../runtime/resolve_attachment.ts";
import { recordedOwners } from "./recorded_owners.ts";

/**
 * Attachments that got rules back while an engine's DEL ran: it had found nothing to remove.
 *
 * An engine takes none of our locks. Its result goes when its DEL has ended, so that is looked for later.
 */
export class RevivedAttachments {
  readonly #entries = new Map<string, { readonly entry: CacheEntry; readonly directory: string }>();

  add(entry: CacheEntry, directory: string): void {
    this.#entries.set(ownerText(entry), { entry, directory });
  }

  /** Tells of a change by another process of this program: the rules of an ADD stay. */
  note(change: RulesetChange): void {
    if (change.operation !== NFT_MSG_NEWSETELEM) return;
    for (const owner of recordedOwners(change)) this.#entries.delete(owner);
  }

  get isEmpty(): boolean {
    return this.#entries.size === 0;
  }

  clear(): void {
    this.#entries.clear();
  }

  /**
   * Removes the rules of those whose DEL has ended, and tells whose they were.
   *
   * @throws {CniError} if it must be called again
   */
  removeEnded(runtime: RuntimeContext, maxWaitMs: number, onRemoved: (owner: Owner) => void): void {
    const entries = [...this.#entries.values()].filter(({ directory }) => directory === runtime.cacheDirectory);
    const ended = entries.map(({ entry }) => entry).filter((entry) => hasEnded(runtime, entry));
    runAllSteps(...ended.map((entry) => () => {
      using _ = lockContainer(runtime.cacheDirectory, entry.containerId, { maxWaitMs });
      // Else its DEL came later, or a new ADD.
      if (!hasEnded(runtime, entry) || !hasRecords(runtime, entry)) return;
      removeRules(runtime, entry);
      this.#entries.delete(ownerText(entry));
      onRemoved(entry);
    }));
  }
}

function hasRecords({ hostContext: { host } }: RuntimeContext, owner: Owner): boolean {
  return TABLES.some((table) =>
    listElements(host.nft, table, RECORD_SET, ownerText(owner))
      .some(({ comment = "" }) => sameOwner(parseOwner(comment), owner))
  );
}

function hasEnded({ cacheDirectory }: RuntimeContext, entry: CacheEntry): boolean {
  try {
    return findEntryAgain(cacheDirectory, entry) === undefined;
  } catch (error) {
    // A damaged result ends nothing.
    if (error instanceof CniError) return false;
    throw error;
  }
}

/** Only rules: an ADD of the same name may have its address and its links by now. */
function removeRules(runtime: RuntimeContext, entry: CacheEntry): void {
  const attachment = resolveAttachment(runtime, entry.network, entry, "remove", entry);
  const { list, entry: parameters } = attachment;
  const prevResult = findCachedResult(runtime, attachment);
  for (const plugin of list.plugins.toReversed()) {
    const location = locatePlugin(runtime, list, plugin);
    if (!("plugin" in location)) continue;
    if (location.plugin.hasRulesOnly) callPlugin(runtime, list, plugin, { command: "DEL", parameters, prevResult });
    else location.plugin.model?.().removeRules?.(runtime.hostContext.host, entry);
  }
}
