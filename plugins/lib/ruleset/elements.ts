/**
 * Elements of sets and maps that belong to attachments.
 *
 * Each element's comment is its owner. A record per owner leads to its elements (owner_records.ts). Removals are read
 * first, and the kernel refuses the transaction if anything has changed since. So a late DEL takes nothing from another
 * container.
 *
 * Reads come before changes: a refused transaction waits some 8 ms for RCU, a query takes 0.03 ms.
 */
import { checkFailedError, missingRulesOf } from "../protocol/check_failed.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import { type Transaction, transaction } from "../../../ffi/nft/transaction.ts";
import { NFT_GOTO, NFT_JUMP } from "../../../ffi/nft/uapi.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { findMissingRules } from "./chain_rules.ts";
import { checkStaticRules, createTable, isOwnTable, missingRulesError } from "./table.ts";
import type { TableDefinition } from "./table.ts";
import { describeOwner, formatOwnerWithNote, type Owner, ownerText, sameOwner } from "../model/owner.ts";

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
import { type ElementKey, type RulesetSnapshot, takeSnapshot } from "./snapshot.ts";
import {
  hasSameTarget,
  isUpToDate,
  matchWanted,
  selectorsFor,
  sharedChainsOf,
  type WantedElement,
} from "./wanted_elements.ts";

export interface ApplyOptions {
  /** Throws on other conflicts; what it reads still holds at the commit. */
  checkConflicts?(missing: number): void;
  log?(message: string): void;
}

/**
 * Makes these elements the owner's, all or none. Creates and repairs the table and the chains that they need.
 *
 * @returns the titles of what was changed, and the chains of the table that had lost rules
 * @throws {ElementInUseError} if another owner has an exclusive one
 * @throws {CniError} if the table is another program's
 */
export function ensureElements(
  nl: Netlink,
  table: TableDefinition,
  owner: Owner,
  wanted: readonly WantedElement[],
  { checkConflicts, log }: ApplyOptions = {},
): string[] {
  if (wanted.length === 0) return [];
  const purpose = purposeOf(table, wanted[0]!.set);
  const record = recordKey(owner, purpose);
  const look = () => takeSnapshotFor(nl, table, wanted, purpose, [record]);
  const restoredChains: string[] = [];
  return retryOnConflict((conflict) => {
    // Another generation does not suggest that the table is damaged.
    const isRefused = conflict !== undefined && conflict.code !== "ERESTART";
    let snapshot = look();
    if (isRefused || !hasNeededChains(snapshot, purpose)) {
      restoredChains.push(...createOrRepair(nl, table, log));
      snapshot = look();
    }
    const { matches, kept } = matchWanted(snapshot, owner, wanted);
    const chains = sharedChainsOf(matches.map(({ element }) => element));
    const missing = matches.filter((match) => !isUpToDate(match, owner));
    checkConflicts?.(missing.length);
    const stale = missing.flatMap(({ found }) => found ?? []);
    const tx = transaction(nl);
    deleteElements(tx, table, stale);
    const { repaired, needsGeneration } = ensureChains(tx, snapshot, chains);
    addElements(tx, table, missing.map(({ element }) => element), owner);
    const unmarked = kept.filter((element) => !isAwaited(element));
    markAwaited(tx, table, unmarked);
    const replacesRecord = updateRecord(tx, snapshot, owner, wanted, record);
    removeUnusedTargets(tx, snapshot, stale, new Set(chains.keys()));
    // Additions alone need no pin: the kernel refuses an existing element and a missing chain.
    const needsPin = stale.length > 0 || unmarked.length > 0 || needsGeneration || replacesRecord || checkConflicts;
    tx.commit(needsPin ? snapshot.generation : undefined);
    const changed = matches.filter(({ element: { chain } }) => chain && repaired.has(chain.name));
    return [...new Set([...restoredChains, ...[...missing, ...changed].map(({ element }) => element.title)])];
  });
}

/** As {@linkcode ensureElements}, but takes nothing from another owner. @throws {ElementInUseError} */
export function restoreElements(
  nl: Netlink,
  table: TableDefinition,
  owner: Owner,
  wanted: readonly WantedElement[],
  { checkConflicts, log }: ApplyOptions = {},
): string[] {
  const exclusive = wanted.map((element) => ({ ...element, exclusive: true }));
  const checkIfMissing = (missing: number) => {
    if (missing > 0) checkConflicts?.(missing);
  };
  return ensureElements(nl, table, owner, exclusive, {
    ...checkConflicts && { checkConflicts: checkIfMissing },
    ...log && { log },
  });
}

function hasNeededChains(snapshot: RulesetSnapshot, purpose: string): boolean {
  return Object.entries(snapshot.table.uses[purpose]!).every(([name, use]) => (snapshot.chain(name)?.use ?? 0) >= use);
}

/** @returns as {@linkcode repairTable} */
function createOrRepair(nl: Netlink, table: TableDefinition, log: ApplyOptions["log"]): string[] {
  const present = nft.findTable(nl, table);
  if (!present) {
    createTable(nl, table);
    return [];
  }
  // A table of an earlier release has fewer sets.
  if (isOwnTable(table, present) && !keepsRecords(nl, table)) addRecords(nl, table);
  const { describeRestoredChains, repairTable } = loadRepair();
  const restored = repairTable(nl, table);
  if (restored.length > 0) {
    log?.(`${describeRestoredChains(restored)}; for other containers, put back what is missing: cni run restore`);
  }
  return restored;
}

/** A failover element, and the map elements that it becomes. */
export interface Promotion {
  readonly from: FoundElement;
  readonly to: readonly PromotedElement[];
}

export type PromotedElement = ElementKey & Required<Pick<nft.Element, "data">>;

/** Ends the note of an element that has a failover element. Without it, DEL looks for none. */
const AWAITED = "awaited";

export const isAwaited = ({ note }: FoundElement): boolean => note?.endsWith(AWAITED) === true;

function awaitedComment(element: FoundElement): string {
  const { owner, note } = element;
  return formatOwnerWithNote(owner!, isAwaited(element) ? note : note === undefined ? AWAITED : `${note},${AWAITED}`);
}

function markAwaited(tx: Transaction, table: TableDefinition, elements: readonly FoundElement[]): void {
  deleteElements(tx, table, elements);
  for (const element of elements) {
    const { set, key, data } = element;
    tx.addElements(table, set, [{ key, ...data && { data }, comment: awaitedComment(element) }]);
  }
}

/** Elements of others that replace removed ones. They wait in sets that no rule uses. */
export interface Failover {
  selectors(removed: readonly FoundElement[]): readonly ElementSelector[];
  promotions(removed: readonly FoundElement[], others: readonly FoundElement[]): readonly Promotion[];
}

/** Removes what an attachment has for one purpose, and unused shared chains. @returns the removed elements */
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
    if (record?.selectors) {
      const selectors = record.selectors.map((selector) =>
        selector.keys ? selector : { ...selector, commented: ownerText(owner) }
      );
      return removeSelected(snapshot, selectors, isOwned, failover, record.keys);
    }
    return !record && keepsRecords(nl, table)
      ? []
      : removeCommented(snapshot, purpose, ownerText(owner), isOwned, failover);
  });
}

/**
 * As {@linkcode removeElementsOf}, for many owners.
 *
 * @param commented text in the comments of all their elements: others are not decoded
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
  // Others may wait behind the promoted one.
  for (const { from, to } of promotions) {
    for (const { set, key, data } of to) tx.addElements(table, set, [{ key, data, comment: awaitedComment(from) }]);
  }
  removeUnusedTargets(tx, snapshot, removed, new Set());
  tx.commit(snapshot.generation);
  return removed;
}

export function checkElements(
  nl: Netlink,
  table: TableDefinition,
  owner: Owner,
  wanted: readonly WantedElement[],
): void {
  if (wanted.length === 0) return;
  const snapshot = takeSnapshot(
    nl,
    table,
    elementKeysOf(selectorsFor(wanted)),
    [...sharedChainsOf(wanted).keys()],
  );
  const { matches } = matchWanted(snapshot, owner, wanted);
  for (const { element, found } of matches) {
    if (!found && element.isNew && !hasRecorded(snapshot, owner, element)) continue;
    const ownedByOther = found !== undefined && !sameOwner(found.owner, owner);
    const fault = ownedByOther
      ? `belongs to ${found.owner ? describeOwner(found.owner) : "an unknown owner"}`
      : findElementFault(snapshot, element, found);
    if (fault) {
      const difference = `the ruleset's element for ${element.title} ${fault}`;
      const place = `set "${element.set}" of table "${table.table}"`;
      throw ownedByOther ? checkFailedError(difference, place) : missingRulesOf(owner, difference, place);
    }
  }
  checkStaticRules(nl, table);
  for (const { name, rules } of sharedChainsOf(matches.map(({ element }) => element)).values()) {
    const loss = findMissingRules(nl, table, name, rules.length);
    if (loss) throw missingRulesError(table, loss);
  }
}

function findElementFault(
  snapshot: RulesetSnapshot,
  element: WantedElement,
  found: FoundElement | undefined,
): string | undefined {
  if (!found) return "is missing";
  if (!hasSameTarget(element, found)) return "has another target";
  const chainLostElements = element.chain && listMissingChainElements(snapshot, element.chain.name).length > 0;
  return chainLostElements ? "jumps to a chain that lost elements of its own" : undefined;
}

/** False if it is unknown. */
function hasRecorded(snapshot: RulesetSnapshot, owner: Owner, element: WantedElement): boolean {
  const record = readRecord(snapshot, owner, purposeOf(snapshot.table, element.set));
  return record?.selectors !== undefined && coversAll(record, [element]);
}

/** Rarely needed: not loaded at start-up. */
function loadRepair(): typeof import("./repair.ts") {
  return require("./repair.ts");
}

function takeSnapshotFor(
  nl: Netlink,
  table: TableDefinition,
  wanted: readonly WantedElement[],
  purpose: string,
  moreKeys: readonly ElementKey[],
): RulesetSnapshot {
  const keys = [...elementKeysOf(selectorsFor(wanted)), ...moreKeys];
  return takeSnapshot(nl, table, keys, [...Object.keys(table.uses[purpose]!), ...sharedChainsOf(wanted).keys()]);
}

function deleteElements(tx: Transaction, table: TableDefinition, found: readonly ElementKey[]): void {
  for (const [set, elements] of Map.groupBy(found, ({ set }) => set)) tx.deleteElements(table, set, elements);
}

function addElements(tx: Transaction, table: TableDefinition, missing: readonly WantedElement[], owner: Owner): void {
  for (const alike of Map.groupBy(missing, ({ set, note }) => `${set} ${note}`).values()) {
    const { set, note } = alike[0]!;
    const comment = formatOwnerWithNote(owner, note);
    tx.addElements(table, set, alike.map(({ key, value, chain }) => ({ key, ...elementData(value, chain), comment })));
  }
}

/** @returns true if the owner's record replaces another one */
function updateRecord(
  tx: Transaction,
  snapshot: RulesetSnapshot,
  owner: Owner,
  wanted: readonly WantedElement[],
  firstKey: ElementKey,
): boolean {
  const { table } = snapshot;
  const purpose = purposeOf(table, wanted[0]!.set);
  const keys = wanted.flatMap(({ set, key, failover }) => [{ set, key }, ...failover ? [failover] : []]);
  const record = readRecord(snapshot, owner, purpose, firstKey);
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

function removeUnusedTargets(
  tx: Transaction,
  snapshot: RulesetSnapshot,
  removed: readonly FoundElement[],
  keptChains: ReadonlySet<string>,
): void {
  const removedReferences = new Map<string, number>();
  for (const { data } of removed) {
    const name = data?.verdict?.chain;
    if (name !== undefined && !keptChains.has(name)) {
      removedReferences.set(name, (removedReferences.get(name) ?? 0) + 1);
    }
  }
  removeUnusedChains(tx, snapshot, removedReferences, keptChains);
}
