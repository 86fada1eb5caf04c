/**
 * Elements of sets and maps that belong to attachments: whatever the number of containers, the rules stay the same.
 *
 * Each element carries its owner as its comment, and a record of each owner leads to its elements (owner_records.ts). What is removed is first read and then removed in a transaction that the kernel refuses
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
import {
  describeOwner,
  formatOwnerWithNote,
  type Owner,
  ownerRestoreHint,
  ownerText,
  sameOwner,
} from "../protocol/owner.ts";
import { ensureChains, listMissingChainElements, removeUnusedChains, type SharedChain } from "./shared_chains.ts";
import {
  addRecords,
  coversAll,
  isRecordFor,
  keepsRecords,
  mergeSelectors,
  purposeOf,
  readRecord,
  RECORD_SET,
  recordElements,
  recordKey,
} from "./owner_records.ts";
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
  checkConflicts?: (missing: readonly WantedElement[]) => void,
): string[] {
  if (wanted.length === 0) return [];
  let attempts = 0;
  const record = recordKey(owner, purposeOf(table, wanted[0]!.set));
  return retryOnConflict(() => {
    let snapshot = takeSnapshotFor(nl, table, wanted, [record]);
    if (ensureTable(nl, table, snapshot.chain(table.sentinel.chain))) {
      snapshot = takeSnapshotFor(nl, table, wanted, [record]);
    } else if (attempts++ > 0) {
      // An earlier release may have made the table, with less in it.
      if (!keepsRecords(nl, table)) addRecords(nl, table);
      loadRepair().repairTable(nl, table);
      snapshot = takeSnapshotFor(nl, table, wanted, [record]);
    }
    const { resolved, present, keptElements } = resolveWanted(snapshot, owner, wanted);
    const missing = resolved.filter((element) => !isUpToDate(element, present.get(elementId(element)), owner));
    checkConflicts?.(missing);
    const stale = missing.flatMap((element) => present.get(elementId(element)) ?? []);
    const tx = transaction(nl);
    deleteElements(tx, table, stale);
    const { repaired: repairedChains, needsGeneration } = ensureChains(tx, snapshot, sharedChainsOf(resolved));
    addElements(tx, table, missing, owner);
    const unmarked = keptElements.filter((element) => !isAwaited(element));
    markAwaited(tx, table, unmarked);
    const replacesRecord = updateRecord(tx, snapshot, owner, wanted);
    removeUnusedTargets(tx, snapshot, stale, resolved);
    // Additions alone need no pin: the kernel refuses a second element of the same key, and a chain that is not there.
    const needsPin = stale.length > 0 || unmarked.length > 0 || needsGeneration || replacesRecord || checkConflicts;
    tx.commit(needsPin ? snapshot.generation : undefined);
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
  checkConflicts?: (missing: readonly WantedElement[]) => void,
): string[] {
  const exclusive = wanted.map((element) => ({ ...element, exclusive: true }));
  const checkIfMissing = checkConflicts && ((missing: readonly WantedElement[]) => {
    if (missing.length > 0) checkConflicts(missing);
  });
  return ensureElements(nl, table, owner, exclusive, checkIfMissing);
}

/** A failover element, and the map elements that it becomes. */
export interface Promotion {
  readonly from: FoundElement;
  readonly to: readonly PromotedElement[];
}

/** A map element that another one becomes. */
export type PromotedElement = ElementKey & Required<Pick<nft.Element, "data">>;

/** Ends the note of an element that a failover element waits for: without it, DEL looks for none. */
const AWAITED = "awaited";

/** Whether failover elements may wait for the element. */
export const isAwaited = ({ note }: FoundElement): boolean => note?.endsWith(AWAITED) === true;

function awaitedComment(element: FoundElement): string {
  const { owner, note } = element;
  return formatOwnerWithNote(owner!, isAwaited(element) ? note : note === undefined ? AWAITED : `${note},${AWAITED}`);
}

/** Writes the note, which takes another element in the place of each. */
function markAwaited(tx: Transaction, table: TableDefinition, elements: readonly FoundElement[]): void {
  deleteElements(tx, table, elements);
  for (const element of elements) {
    const { set, key, data } = element;
    tx.addElements(table, set, [{ key, ...data && { data }, comment: awaitedComment(element) }]);
  }
}

/** What takes the place of removed elements: elements of others that wait for that, in sets that no rule uses. */
export interface Failover {
  /** Where those for the removed elements may be. */
  selectors(removed: readonly FoundElement[]): readonly ElementSelector[];
  /** Which of them take a place. */
  promotions(removed: readonly FoundElement[], others: readonly FoundElement[]): readonly Promotion[];
}

/**
 * Removes all that an attachment has for one purpose, and the shared chains that no element jumps to any more. Its record says where that
 * is: nothing else is read, however many containers there are.
 *
 * @returns the elements that were removed
 * @throws {NetlinkError}
 */
export function removeElementsOf(
  nl: Netlink,
  table: TableDefinition,
  purpose: string,
  owner: Owner,
  failover?: Failover,
): FoundElement[] {
  return retryOnConflict(() => {
    const snapshot = takeSnapshot(nl, table, [recordKey(owner, purpose)], []);
    const record = readRecord(snapshot, owner, purpose);
    const isOwned = (candidate: Owner) => sameOwner(candidate, owner);
    if (record?.selectors) return removeSelected(snapshot, record.selectors, isOwned, failover, record.keys);
    return !record && keepsRecords(nl, table)
      ? []
      : removeCommented(snapshot, purpose, ownerText(owner), isOwned, failover);
  });
}

/**
 * Removes the selected elements whose owners `isOwner` picks, their records, and the shared chains that no element jumps to any more.
 *
 * @param commented only those whose comment holds this text, which are found quickly among many others
 * @returns the elements that were removed
 * @throws {NetlinkError}
 */
export function removeElements(
  nl: Netlink,
  table: TableDefinition,
  purpose: string,
  commented: string,
  isOwner: (owner: Owner) => boolean,
  failover?: Failover,
): FoundElement[] {
  return retryOnConflict(() => removeCommented(takeSnapshot(nl, table, [], []), purpose, commented, isOwner, failover));
}

/** Searches all sets that the purpose has. */
function removeCommented(
  snapshot: RulesetSnapshot,
  purpose: string,
  commented: string,
  isOwner: (owner: Owner) => boolean,
  failover: Failover | undefined,
): FoundElement[] {
  const records = [...fetchElements(snapshot, [{ set: RECORD_SET, commented }]).values()]
    .filter((element) => element.owner && isOwner(element.owner) && isRecordFor(element, element.owner, purpose));
  const selectors = snapshot.table.purposes[purpose]!.map((set) => ({ set, commented }));
  return removeSelected(snapshot, selectors, isOwner, failover, records);
}

function removeSelected(
  snapshot: RulesetSnapshot,
  selectors: readonly ElementSelector[],
  isOwner: (owner: Owner) => boolean,
  failover: Failover | undefined,
  records: readonly ElementKey[] = [],
): FoundElement[] {
  const { nl, table } = snapshot;
  const removed = [...fetchElements(snapshot, selectors).values()]
    .filter(({ owner }) => owner !== undefined && isOwner(owner));
  const others = failover ? [...fetchElements(snapshot, failover.selectors(removed)).values()] : [];
  const promotions = failover?.promotions(removed, others.filter(({ owner }) => !owner || !isOwner(owner))) ?? [];
  const tx = transaction(nl);
  deleteElements(tx, table, [...removed, ...promotions.map(({ from }) => from), ...records]);
  // Others may wait behind the one that is promoted.
  for (const { from, to } of promotions) {
    for (const { set, key, data } of to) tx.addElements(table, set, [{ key, data, comment: awaitedComment(from) }]);
  }
  removeUnusedTargets(tx, snapshot, removed, []);
  tx.commit(snapshot.generation);
  return removed;
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
  const { resolved, present } = resolveWanted(snapshot, owner, wanted);
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

/** Needed in exceptional cases only: `require` runs it here and not at start-up. */
function loadRepair(): typeof import("./repair.ts") {
  return require("./repair.ts");
}

/** Sees at once all that may matter for what is wanted. */
function takeSnapshotFor(
  nl: Netlink,
  table: TableDefinition,
  wanted: readonly WantedElement[],
  moreKeys: readonly ElementKey[] = [],
): RulesetSnapshot {
  const keys = [...elementKeysOf(selectorsFor(wanted)), ...moreKeys];
  return takeSnapshot(nl, table, keys, [table.sentinel.chain, ...sharedChainsOf(wanted).keys()]);
}

function deleteElements(tx: Transaction, table: TableDefinition, found: readonly ElementKey[]): void {
  for (const [set, elements] of groupBySet(found)) tx.deleteElements(table, set, elements.map(({ key }) => ({ key })));
}

function addElements(tx: Transaction, table: TableDefinition, missing: readonly WantedElement[], owner: Owner): void {
  const toElement = ({ key, value, chain, note }: WantedElement): nft.Element => {
    return { key, comment: formatOwnerWithNote(owner, note), ...elementData(value, chain) };
  };
  for (const [set, elements] of groupBySet(missing)) tx.addElements(table, set, elements.map(toElement));
}

/** Has the owner's record lead to all that it may have by now. @returns true if another record is replaced */
function updateRecord(
  tx: Transaction,
  snapshot: RulesetSnapshot,
  owner: Owner,
  wanted: readonly WantedElement[],
): boolean {
  const { table } = snapshot;
  const purpose = purposeOf(table, wanted[0]!.set);
  const keys = wanted.flatMap(({ set, key, failover }) => [{ set, key }, ...failover ? [failover] : []]);
  const record = readRecord(snapshot, owner, purpose);
  if (record && coversAll(record, keys)) return false;
  deleteElements(tx, table, record?.keys ?? []);
  tx.addElements(
    table,
    RECORD_SET,
    recordElements(table, owner, purpose, mergeSelectors(record?.selectors ?? [], keys)),
  );
  return record !== undefined;
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
