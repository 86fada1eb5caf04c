/**
 * Elements of sets and maps that belong to attachments: whatever the number of containers, the rules stay the same.
 *
 * Each element carries its owner as its comment. What is removed is first read and then removed in a transaction that the kernel refuses
 * if anything has changed in between; so a late DEL of one container cannot take what another has got since.
 *
 * The kernel is asked before it is told: a refused transaction waits for a grace period of RCU, some 8 ms, and a question takes 0.03 ms.
 *
 * @module
 */
import { checkFailedError } from "../protocol/check_failed.ts";
import type * as nft from "../../../ffi/nft/objects.ts";
import { type Transaction, transaction } from "../../../ffi/nft/transaction.ts";
import { NFT_GOTO, NFT_JUMP } from "../../../ffi/nft/uapi.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { findMissingRules } from "./chain_rules.ts";
import { checkStaticRules, ensureTable, missingRulesError } from "./table.ts";
import type { TableDefinition } from "./table_definition.ts";
import { describeOwner, formatOwnerWithNote, type Owner, ownerRestoreHint, sameOwner } from "../protocol/owner.ts";
import { ensureChains, listMissingChainElements, removeUnusedChains, type SharedChain } from "./shared_chains.ts";
import { retryOnConflict } from "./retry.ts";
import { elementKeysOf, type ElementSelector, fetchElements, type FoundElement } from "./element_lookup.ts";
import { elementId, type ElementKey, type RulesetSnapshot, takeSnapshot } from "./snapshot.ts";
import {
  hasSameTarget,
  isUpToDate,
  resolveWanted,
  selectorsFor,
  sharedChainsOf,
  type WantedElement,
} from "./wanted_elements.ts";

/**
 * Makes these elements the owner's, all or none; those that are already are left as they are.
 *
 * What they lead to and what belongs to that is put back as well, if somebody took it away.
 *
 * @param checkConflicts sees whether anything else is in the way, and throws if so; what is seen there still holds when the elements are added
 * @returns the titles of those that were not as they are to be
 * @throws {ElementInUseError} if another owner has an exclusive one
 * @throws {CniError} if the table has lost rules
 * @throws {NetlinkError}
 */
export function ensureElements(
  nl: Netlink,
  table: TableDefinition,
  owner: Owner,
  wanted: readonly WantedElement[],
  checkConflicts?: () => void,
): string[] {
  if (wanted.length === 0) return [];
  return retryOnConflict(() => {
    let snapshot = takeSnapshotFor(nl, table, wanted);
    if (ensureTable(nl, table, snapshot.chain(table.sentinel.chain))) snapshot = takeSnapshotFor(nl, table, wanted);
    const { possible: resolved, present } = resolveWanted(snapshot, owner, wanted);
    const missing = resolved.filter((element) => !isUpToDate(element, present.get(elementId(element)), owner));
    checkConflicts?.();
    const stale = missing.flatMap((element) => present.get(elementId(element)) ?? []);
    const tx = transaction(nl);
    deleteElements(tx, table, stale);
    const { repaired: repairedChains, needsGeneration } = ensureChains(tx, snapshot, sharedChainsOf(resolved));
    addElements(tx, table, missing, owner);
    removeUnusedTargets(tx, snapshot, stale, resolved);
    // Additions alone need no pin: the kernel refuses a second element of the same key, and a chain that is not there.
    tx.commit(stale.length > 0 || needsGeneration || checkConflicts ? snapshot.generation : undefined);
    const changed = resolved.filter((element) =>
      missing.includes(element) || (element.chain && repairedChains.has(element.chain.name))
    );
    return [...new Set(changed.map(({ title }) => title))];
  });
}

/**
 * Does what {@linkcode ensureElements} does, for an attachment that had these elements before: what another owner has by now it keeps.
 *
 * @returns the titles of those that were missing
 * @throws {ElementInUseError} if another owner has one of them
 */
export function restoreElements(
  nl: Netlink,
  table: TableDefinition,
  owner: Owner,
  wanted: readonly WantedElement[],
  checkConflicts?: () => void,
): string[] {
  return ensureElements(nl, table, owner, wanted.map((element) => ({ ...element, exclusive: true })), checkConflicts);
}

/** A failover element, and the map element that it becomes. */
export interface Promotion {
  readonly from: FoundElement;
  readonly to: ElementKey & { readonly value: Uint8Array };
}

/**
 * Removes the elements whose owners `isOwner` picks, and the shared chains that no element jumps to any more.
 *
 * @param promotionsOf which of the others that were selected take the place of removed ones
 * @param moreSelectors what to fetch besides, given the found elements to remove and the others
 * @returns the elements that were removed
 * @throws {NetlinkError}
 */
export function removeElements(
  nl: Netlink,
  table: TableDefinition,
  selectors: readonly ElementSelector[],
  isOwner: (owner: Owner) => boolean,
  promotionsOf: (removed: readonly FoundElement[], others: readonly FoundElement[]) => readonly Promotion[] = () => [],
  moreSelectors: (isOwner: readonly FoundElement[], others: readonly FoundElement[]) => readonly ElementSelector[] =
    () => [],
): FoundElement[] {
  return retryOnConflict(() => {
    const snapshot = takeSnapshot(nl, table, elementKeysOf(selectors), []);
    const isOwned = ({ owner }: FoundElement) => owner !== undefined && isOwner(owner);
    const fetched = fetchElements(snapshot, selectors);
    const split = () => Object.groupBy(fetched.values(), (element) => isOwned(element) ? "owned" : "others");
    const firstSplit = split();
    for (
      const [id, element] of fetchElements(snapshot, moreSelectors(firstSplit.owned ?? [], firstSplit.others ?? []))
    ) fetched.set(id, element);
    const { owned: removed = [], others = [] } = split();
    const promotions = promotionsOf(removed, others);
    const tx = transaction(nl);
    deleteElements(tx, table, [...removed, ...promotions.map(({ from }) => from)]);
    for (const { from: { comment }, to: { set, key, value } } of promotions) {
      tx.addElements(table, set, [{ key, data: { value }, ...comment !== undefined && { comment } }]);
    }
    removeUnusedTargets(tx, snapshot, removed, []);
    tx.commit(snapshot.generation);
    return removed;
  });
}

/** Compares what is with what {@linkcode ensureElements} made, and whether rules were taken away. @throws {CniError} on the first difference */
export function checkElements(
  nl: Netlink,
  table: TableDefinition,
  owner: Owner,
  wanted: readonly WantedElement[],
): void {
  if (wanted.length === 0) return;
  const snapshot = takeSnapshotFor(nl, table, wanted);
  const { possible: resolved, present } = resolveWanted(snapshot, owner, wanted);
  for (const element of resolved) {
    const found = present.get(elementId(element));
    const ownedByOther = found !== undefined && !sameOwner(found.owner, owner);
    const fault = !found
      ? "is missing"
      : ownedByOther
      ? `belongs to ${found.owner ? describeOwner(found.owner) : "an unknown owner"}`
      : !hasSameTarget(element, found)
      ? "has another target"
      : element.chain && listMissingChainElements(snapshot, element.chain.name).length > 0
      ? "jumps to a chain that lost elements of its own"
      : undefined;
    if (fault) {
      throw checkFailedError(
        `the ruleset's element for ${element.title} ${fault}`,
        `set "${element.set}" of table "${table.table}"${ownedByOther ? "" : `; ${ownerRestoreHint(owner)}`}`,
      );
    }
  }
  checkStaticRules(nl, table);
  for (const { name, rules } of sharedChainsOf(resolved).values()) {
    const loss = findMissingRules(nl, table, name, rules.length);
    if (loss) throw missingRulesError(table, loss);
  }
}

/** Sees at once all that may matter for what is wanted. */
function takeSnapshotFor(nl: Netlink, table: TableDefinition, wanted: readonly WantedElement[]): RulesetSnapshot {
  const keys = elementKeysOf(selectorsFor(wanted));
  return takeSnapshot(nl, table, keys, [table.sentinel.chain, ...sharedChainsOf(wanted).keys()]);
}

function deleteElements(tx: Transaction, table: TableDefinition, found: readonly FoundElement[]): void {
  for (const [set, elements] of groupBySet(found)) tx.deleteElements(table, set, elements.map(({ key }) => ({ key })));
}

function addElements(tx: Transaction, table: TableDefinition, missing: readonly WantedElement[], owner: Owner): void {
  const toElement = ({ key, value, chain, note }: WantedElement): nft.Element => {
    return { key, comment: formatOwnerWithNote(owner, note), ...elementData(value, chain) };
  };
  for (const [set, elements] of groupBySet(missing)) tx.addElements(table, set, elements.map(toElement));
}

function elementData(value: Uint8Array | undefined, chain: SharedChain | undefined): Pick<nft.Element, "data"> {
  if (chain) return { data: { verdict: { code: chain.usesGoto ? NFT_GOTO : NFT_JUMP, chain: chain.name } } };
  return value ? { data: { value } } : {};
}

function groupBySet<T extends { readonly set: string }>(elements: readonly T[]): Map<string, T[]> {
  const sets = new Map<string, T[]>();
  for (const element of elements) {
    const group = sets.get(element.set);
    if (group) group.push(element);
    else sets.set(element.set, [element]);
  }
  return sets;
}

/** Removes the chains to which nothing but the removed elements led. */
function removeUnusedTargets(
  tx: Transaction,
  snapshot: RulesetSnapshot,
  removed: readonly FoundElement[],
  added: readonly WantedElement[],
): void {
  const removedReferences = new Map<string, number>();
  for (const { data } of removed) {
    const name = data?.verdict?.chain;
    if (name !== undefined && !added.some(({ chain }) => chain?.name === name)) {
      removedReferences.set(name, (removedReferences.get(name) ?? 0) + 1);
    }
  }
  removeUnusedChains(tx, snapshot, removedReferences, new Set(sharedChainsOf(added).keys()));
}
