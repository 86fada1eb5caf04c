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
import * as nft from "../../ffi/nft/objects.ts";
import { type Transaction, transaction } from "../../ffi/nft/transaction.ts";
import { NFT_GOTO, NFT_JUMP } from "../../ffi/nft/uapi.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { CniError, Code } from "../spec/error.ts";
import { findChainLoss } from "./own_rules.ts";
import { checkRules, ensureTable, lossError, type OwnTable } from "./own_table.ts";
import { describeOwner, formatOwner, type Owner, parseOwner, remedyFor, sameOwner } from "./owner.ts";
import { ensureChains, listLostCompanions, removeUnusedChains, type SharedChain } from "./shared_chains.ts";
import { untilUndisturbed } from "./undisturbed.ts";

/** An element that an attachment needs. */
export interface WantedElement {
  readonly set: string;
  readonly key: Uint8Array;
  /** In a map: what the key leads to. */
  readonly value?: Uint8Array;
  /** In a verdict map: where packets go on. */
  readonly chain?: SharedChain;
  /** A chain that does what this one is for, and more: if the owner's element leads there, it stays so. */
  readonly orChain?: (name: string) => SharedChain | undefined;
  /** What it is for, in the words of an error: `host port 8080/tcp`. */
  readonly title: string;
  /** True if another owner keeps it; else it is taken from the other, whose DEL is late. */
  readonly exclusive?: boolean;
  /** What to have instead, in a set that no rule looks at, as long as another attachment of the same container has an exclusive one. */
  readonly standby?: Place;
}

/** Where an element is. */
export interface Place {
  readonly set: string;
  readonly key: Uint8Array;
}

/** Elements to look at: those with these keys, or all of the set. */
export interface Selection {
  readonly set: string;
  readonly keys?: readonly Uint8Array[];
  /** Without keys: only those whose comment holds this text, which are found quickly among many others. */
  readonly commented?: string;
}

/** Another attachment has what this one needs. */
export class TakenError extends Error {
  override readonly name: string = "TakenError";
  readonly element: WantedElement;
  readonly holder: Owner | undefined;

  constructor(element: WantedElement, holder: Owner | undefined) {
    super(`Cannot use ${element.title}: it belongs to ${holder ? describeOwner(holder) : "an unknown owner"}`);
    this.element = element;
    this.holder = holder;
  }
}

/**
 * Makes these elements the owner's, all or none; those that are already are left as they are.
 *
 * What they lead to and what belongs to that is put back as well, if somebody took it away.
 *
 * @param look sees whether anything else is in the way, and throws if so; what is seen there still holds when the elements are added
 * @returns the titles of those that were not as they are to be
 * @throws {TakenError} if another owner has an exclusive one
 * @throws {CniError} if the table has lost rules
 * @throws {NetlinkError}
 */
export function ensureElements(
  nl: Netlink,
  table: OwnTable,
  owner: Owner,
  wanted: readonly WantedElement[],
  look?: () => void,
): string[] {
  if (wanted.length === 0) return [];
  const comment = formatOwner(owner);
  return untilUndisturbed(() => {
    ensureTable(nl, table);
    const generation = nft.generation(nl);
    look?.();
    const { possible, present } = findPlaces(nl, table, owner, wanted);
    const missing = possible.filter((each) => !isSettled(each, present.get(identify(each)), owner));
    const stale = missing.flatMap((each) => present.get(identify(each)) ?? []);
    const tx = transaction(nl);
    removeFrom(tx, table, stale);
    const { mended, relies } = ensureChains(tx, nl, table, chainsOf(possible));
    addTo(tx, table, missing, comment);
    removeUnused(tx, nl, table, stale, possible);
    // Additions alone need no pin: the kernel refuses a second element of the same key, and a chain that is not there.
    tx.commit(stale.length > 0 || relies || look ? generation : undefined);
    const changed = possible.filter((each) => missing.includes(each) || (each.chain && mended.has(each.chain.name)));
    return [...new Set(changed.map(({ title }) => title))];
  });
}

/**
 * Does what {@linkcode ensureElements} does, for an attachment that had these elements before: what another owner has by now it keeps.
 *
 * @returns the titles of those that were missing
 * @throws {TakenError} if another owner has one of them
 */
export function restoreElements(
  nl: Netlink,
  table: OwnTable,
  owner: Owner,
  wanted: readonly WantedElement[],
  look?: () => void,
): string[] {
  return ensureElements(nl, table, owner, wanted.map((each) => ({ ...each, exclusive: true })), look);
}

/** An element that stood by, and the one in a map that it becomes. */
export interface Heir {
  readonly from: FoundElement;
  readonly to: Place & { readonly value: Uint8Array };
}

/**
 * Removes the elements whose owners are `mine`, and the chains that nothing leads to any more.
 *
 * @param heirsOf which of the others that were selected take the place of removed ones
 * @returns the elements that were removed
 * @throws {NetlinkError}
 */
export function removeElements(
  nl: Netlink,
  table: OwnTable,
  selections: readonly Selection[],
  mine: (owner: Owner) => boolean,
  heirsOf: (removed: readonly FoundElement[], others: readonly FoundElement[]) => readonly Heir[] = () => [],
): FoundElement[] {
  return untilUndisturbed(() => {
    const generation = nft.generation(nl);
    const present = [...readElements(nl, table, selections).values()];
    const isMine = ({ owner }: FoundElement) => owner !== undefined && mine(owner);
    const found = present.filter(isMine);
    const heirs = heirsOf(found, present.filter((each) => !isMine(each)));
    const tx = transaction(nl);
    removeFrom(tx, table, [...found, ...heirs.map(({ from }) => from)]);
    for (const { from: { comment }, to: { set, key, value } } of heirs) {
      tx.addElements(table, set, [{ key, data: { value }, ...comment !== undefined && { comment } }]);
    }
    removeUnused(tx, nl, table, found, []);
    tx.commit(generation);
    return found;
  });
}

/** Compares what is with what {@linkcode ensureElements} made, and whether rules were taken away. @throws {CniError} on the first difference */
export function checkElements(nl: Netlink, table: OwnTable, owner: Owner, wanted: readonly WantedElement[]): void {
  if (wanted.length === 0) return;
  const { possible, present } = findPlaces(nl, table, owner, wanted);
  for (const each of possible) {
    const found = present.get(identify(each));
    const isOthers = found !== undefined && !sameOwner(found.owner, owner);
    const fault = !found
      ? "is missing"
      : isOthers
      ? `belongs to ${found.owner ? describeOwner(found.owner) : "an unknown owner"}`
      : !sameContent(each, found)
      ? "leads elsewhere"
      : each.chain && listLostCompanions(nl, table, each.chain.name).length > 0
      ? "leads to a chain that has lost what belongs to it"
      : undefined;
    if (fault) {
      throw new CniError(Code.Internal, `Check failed: the ruleset's element for ${each.title} ${fault}`, {
        details: `set "${each.set}" of table "${table.table}"${isOthers ? "" : `; ${remedyFor(owner)}`}`,
      });
    }
  }
  checkRules(nl, table);
  for (const { name, rules } of chainsOf(possible).values()) {
    const loss = findChainLoss(nl, table, name, rules.length);
    if (loss) throw lossError(table, loss);
  }
}

/** The attachments of a network that live no more, by those that do: what GC removes (SPEC §GC). */
export function deadOf(network: string, valid: readonly Omit<Owner, "network">[]): (owner: Owner) => boolean {
  const living = new Set(valid.map((each) => formatOwner({ ...each, network })));
  return (owner) => owner.network === network && !living.has(formatOwner(owner));
}

/** An element as it was found. */
export interface FoundElement extends nft.Element {
  readonly set: string;
  readonly owner: Owner | undefined;
}

const identify = ({ set, key }: Place): string => `${set} ${nft.hex(key)}`;

/** What is wanted, at places that are not another attachment's of the same container, and what is at these places. */
function findPlaces(nl: Netlink, table: OwnTable, owner: Owner, wanted: readonly WantedElement[]) {
  const present = readElements(nl, table, selectionOf(wanted));
  const waiting: WantedElement[] = [];
  const possible = wanted.map((each): WantedElement => {
    const found = present.get(identify(each));
    const holder = found?.owner;
    const led = sameOwner(holder, owner) ? found?.data?.verdict?.chain : undefined;
    const chain = led === undefined ? undefined : each.orChain?.(led);
    if (chain) return { ...each, chain };
    if (!each.standby || holder?.containerId !== owner.containerId || sameOwner(holder, owner)) return each;
    const instead = { ...each.standby, title: `${each.title} (it stands by)` };
    waiting.push(instead);
    return instead;
  });
  for (const [id, element] of readElements(nl, table, selectionOf(waiting))) present.set(id, element);
  return { possible, present };
}

function selectionOf(wanted: readonly WantedElement[]): Selection[] {
  return [...new Set(wanted.map(({ set }) => set))].map((set) => ({
    set,
    keys: wanted.filter((each) => each.set === set).map(({ key }) => key),
  }));
}

/** From about here on, listing a whole set is faster than asking for one element after the other. */
const MANY_KEYS = 64;

function readElements(nl: Netlink, table: OwnTable, selections: readonly Selection[]): Map<string, FoundElement> {
  const found = new Map<string, FoundElement>();
  for (const { set, keys, commented } of selections) {
    const elements = keys && keys.length <= MANY_KEYS
      ? keys.flatMap((key) => nft.findElement(nl, table, set, key) ?? [])
      : nft.listElements(nl, table, set, commented);
    const wanted = keys && keys.length > MANY_KEYS ? new Set(keys.map(nft.hex)) : undefined;
    for (const each of elements) {
      if (wanted && !wanted.has(nft.hex(each.key))) continue;
      const element = { ...each, set, owner: parseOwner(each.comment ?? "") };
      found.set(identify(element), element);
    }
  }
  return found;
}

/** True if the element is the owner's already, with the same content. @throws {TakenError} */
function isSettled(wanted: WantedElement, found: FoundElement | undefined, owner: Owner): boolean {
  if (!found) return false;
  const own = sameOwner(found.owner, owner);
  if (!own && wanted.exclusive) throw new TakenError(wanted, found.owner);
  return own && sameContent(wanted, found);
}

function sameContent({ value, chain }: WantedElement, { data }: nft.Element): boolean {
  if (chain) return data?.verdict?.chain === chain.name;
  return value === undefined || (data?.value !== undefined && nft.hex(data.value) === nft.hex(value));
}

function removeFrom(tx: Transaction, table: OwnTable, found: readonly FoundElement[]): void {
  for (const [set, elements] of bySet(found)) tx.deleteElements(table, set, elements.map(({ key }) => ({ key })));
}

function addTo(tx: Transaction, table: OwnTable, missing: readonly WantedElement[], comment: string): void {
  for (const [set, elements] of bySet(missing)) {
    tx.addElements(table, set, elements.map(({ key, value, chain }) => ({ key, comment, ...dataOf(value, chain) })));
  }
}

/** The chains that elements lead to, each once. */
function chainsOf(wanted: readonly WantedElement[]): Map<string, SharedChain> {
  return new Map(wanted.flatMap(({ chain }) => chain ? [[chain.name, chain]] : []));
}

function dataOf(value: Uint8Array | undefined, chain: SharedChain | undefined): Pick<nft.Element, "data"> {
  if (chain) return { data: { verdict: { code: chain.isFinal ? NFT_GOTO : NFT_JUMP, chain: chain.name } } };
  return value ? { data: { value } } : {};
}

function bySet<T extends { readonly set: string }>(elements: readonly T[]): Map<string, T[]> {
  const sets = new Map<string, T[]>();
  for (const each of elements) sets.set(each.set, [...sets.get(each.set) ?? [], each]);
  return sets;
}

/** Removes the chains to which nothing but the removed elements led. */
function removeUnused(
  tx: Transaction,
  nl: Netlink,
  table: OwnTable,
  removed: readonly FoundElement[],
  added: readonly WantedElement[],
): void {
  const led = new Map<string, number>();
  for (const { data } of removed) {
    const name = data?.verdict?.chain;
    if (name !== undefined && !added.some(({ chain }) => chain?.name === name)) led.set(name, (led.get(name) ?? 0) + 1);
  }
  removeUnusedChains(tx, nl, table, led, new Set(chainsOf(added).keys()));
}
