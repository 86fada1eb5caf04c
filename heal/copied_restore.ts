import { NetlinkError } from "../ffi/netlink/error.ts";
import type { Netlink } from "../ffi/netlink/socket.ts";
import * as nft from "../ffi/nft/objects.ts";
import { transaction } from "../ffi/nft/transaction.ts";
import { IPPROTO_UDP } from "../ffi/sys/uapi.ts";
import { ownerText } from "../plugins/lib/model/owner.ts";
import { inetTable, LOOPBACK_CALLS_CHAIN } from "../plugins/lib/ruleset/inet_table.ts";
import { TABLES } from "../plugins/lib/ruleset/repair.ts";
import { retryOnConflict } from "../plugins/lib/ruleset/retry.ts";
import { parsePortElement } from "../plugins/lib/ruleset/port_elements.ts";
import { CniError } from "../spec/error.ts";
import type { Result } from "../spec/result.ts";
import { type CacheEntry, findEntryAgain, listCacheEntries } from "../runtime/cache.ts";
import { parseCachedResult } from "../runtime/cached_result.ts";
import type { RuntimeContext } from "../runtime/context.ts";
import { lockNode } from "../runtime/lock.ts";
import { netnsGoneReason } from "../runtime/netns_gone.ts";
import type { RestoreReport } from "../runtime/restore.ts";
import type { OwnedElement, RulesetCopy } from "./ruleset_copy.ts";

export interface CopiedRestoreOptions {
  /** With fewer, plugins are fast enough. */
  readonly minAttachments: number;
  /** How long to wait while another command holds the node's lock. */
  readonly maxWaitMs: number;
  restoreByPlugins(isWanted: (entry: CacheEntry) => boolean): RestoreReport;
  isElsewhere(result: Result): boolean;
  /** Reads what the kernel tells. @returns those that may still come back */
  keepUnchanged(entries: readonly CacheEntry[]): readonly CacheEntry[];
}

export interface CopiedRestore {
  /** Those whose plugins were called first. */
  readonly report?: RestoreReport;
  readonly entries: readonly CacheEntry[];
  readonly sets: ReadonlySet<string>;
}

const NOTHING: CopiedRestore = { entries: [], sets: new Set() };
/** A commit must fit into the socket's buffer, and others wait for it. */
const ATTACHMENTS_PER_COMMIT = 200;

/**
 * Puts elements of many attachments back as they were, in few commits: calls of each one's plugins take ten times as
 * long. They are called afterwards, for the rest. Less comes back if others change the same.
 */
export function restoreCopied(
  runtime: RuntimeContext,
  copy: RulesetCopy,
  options: CopiedRestoreOptions,
): CopiedRestore {
  const { cacheDirectory, hostContext: { host } } = runtime;
  const lost = copy.findLost(host.nft);
  if (lost.size < options.minAttachments) return NOTHING;
  const entries = listCacheEntries(cacheDirectory).filter((entry) => lost.has(ownerText(entry)));
  if (entries.length < options.minAttachments) return NOTHING;
  const mayRestore = (entry: CacheEntry) =>
    options.keepUnchanged([entry]).length > 0 && isLiving(runtime, entry, options);
  const first = firstOwners(host.nft, entries, lost, mayRestore);
  const report = options.restoreByPlugins((entry) => first.has(ownerText(entry)));
  const restored: CacheEntry[] = [];
  const sets = new Set<string>();
  try {
    // Commands of this program keep out. DELs of engines show in the generation.
    using _ = lockNode(cacheDirectory, options);
    const living = entries.filter((entry) =>
      !first.has(ownerText(entry)) && isSimple(lost.get(ownerText(entry))!) && isLiving(runtime, entry, options)
    );
    for (let at = 0; at < living.length; at += ATTACHMENTS_PER_COMMIT) {
      const added = addElements(host.nft, living.slice(at, at + ATTACHMENTS_PER_COMMIT), lost, options);
      restored.push(...added);
      for (const entry of added) for (const { set } of lost.get(ownerText(entry))!) sets.add(set);
    }
  } catch (error) {
    // The plugins of each attachment do the rest.
    if (!(error instanceof CniError) && !(error instanceof NetlinkError)) throw error;
  }
  return { report, entries: restored, sets };
}

type LostElements = ReadonlyMap<string, readonly OwnedElement[]>;

/** Those whose plugins make the tables, sets and chains that the others need too. */
function firstOwners(
  nl: Netlink,
  entries: readonly CacheEntry[],
  lost: LostElements,
  mayRestore: (entry: CacheEntry) => boolean,
): ReadonlySet<string> {
  const makers = new Map<string, { readonly owner: string; readonly query: nft.Query<unknown> }>();
  for (const entry of entries) {
    const owner = ownerText(entry);
    const needed = lost.get(owner)!.flatMap(({ table, set, element }): { id: string; query: nft.Query<unknown> }[] => {
      const { family } = table;
      const target = element.data?.verdict?.chain;
      const isPort = table === inetTable && inetTable.purposes["ports"]!.includes(set);
      const chains = [...target === undefined ? [] : [target], ...isPort ? [LOOPBACK_CALLS_CHAIN] : []];
      return [
        { id: `${family} set ${set}`, query: nft.setQuery(table, set) },
        ...chains.map((chain) => ({ id: `${family} chain ${chain}`, query: nft.chainQuery(table, chain) })),
      ];
    }).filter(({ id }) => !makers.has(id));
    if (needed.length === 0 || !mayRestore(entry)) continue;
    for (const { id, query } of needed) makers.set(id, { owner, query });
  }
  const all = [...makers.values()];
  const found = nft.getAll(nl, all.map(({ query }) => query));
  return new Set(all.filter((_, i) => found[i] === undefined).map(({ owner }) => owner));
}

/** After a time without a published UDP port, its plugin flushes flows. */
function isSimple(elements: readonly OwnedElement[]): boolean {
  return !elements.some(({ set, element }) => parsePortElement({ ...element, set })?.protocol === IPPROTO_UDP);
}

function isLiving(runtime: RuntimeContext, listed: CacheEntry, { isElsewhere }: CopiedRestoreOptions): boolean {
  const entry = findEntryAgain(runtime.cacheDirectory, listed);
  if (!entry?.netns || netnsGoneReason(entry, runtime.hostContext) !== undefined) return false;
  const result = parseCachedResult(entry);
  return result !== undefined && !isElsewhere(result);
}

/** @returns those that did not change meanwhile */
function addElements(
  nl: Netlink,
  entries: readonly CacheEntry[],
  lost: LostElements,
  { keepUnchanged }: CopiedRestoreOptions,
): readonly CacheEntry[] {
  return retryOnConflict(() => {
    const generation = nft.getGenerationId(nl);
    const kept = keepUnchanged(entries);
    const elements = kept.flatMap((entry) => lost.get(ownerText(entry))!);
    const tx = transaction(nl);
    for (const table of TABLES) {
      const own = elements.filter((element) => element.table === table);
      for (const [set, some] of Map.groupBy(own, ({ set }) => set)) {
        tx.addElements(table, set, some.map(({ element }) => element));
      }
    }
    tx.commit(generation);
    return kept;
  });
}
