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
import * as nft from "../../../ffi/nft/objects.ts";
import { type Transaction, transaction } from "../../../ffi/nft/transaction.ts";
import { NFT_GOTO, NFT_JUMP } from "../../../ffi/nft/uapi.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { CniError, Code } from "../../../spec/error.ts";
import { findChainLoss } from "./chain_rules.ts";
import { checkRules, ensureTable, lossError, type OwnTable } from "./table.ts";
import { describeOwner, formatNoted, oneOf, type Owner, remedyFor, sameOwner } from "../protocol/owner.ts";
import { ensureChains, listLostCompanions, removeUnusedChains, type SharedChain } from "./shared_chains.ts";
import { untilUndisturbed } from "./retry.ts";
import { type FoundElement, placesIn, readElements, type Selection } from "./element_lookup.ts";
import { identify, type Place, type View, viewOf } from "./snapshot.ts";

export type { FoundElement, Selection } from "./element_lookup.ts";
export type { Place } from "./snapshot.ts";

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
  /** What the element tells of all that its owner has: one word, which is left out as soon as it is not true any more. */
  readonly note?: string;
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
  return untilUndisturbed(() => {
    let view = viewFor(nl, table, wanted);
    if (ensureTable(nl, table, view.chain(table.sentinel.chain))) view = viewFor(nl, table, wanted);
    const { possible, present } = findPlaces(view, owner, wanted);
    const missing = possible.filter((each) => !isSettled(each, present.get(identify(each)), owner));
    look?.();
    const stale = missing.flatMap((each) => present.get(identify(each)) ?? []);
    const tx = transaction(nl);
    removeFrom(tx, table, stale);
    const { mended, relies } = ensureChains(tx, view, chainsOf(possible));
    addTo(tx, table, missing, owner);
    removeUnused(tx, view, stale, possible);
    // Additions alone need no pin: the kernel refuses a second element of the same key, and a chain that is not there.
    tx.commit(stale.length > 0 || relies || look ? view.generation : undefined);
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
 * @param more where to look besides, by those that were found, first those that are to go
 * @returns the elements that were removed
 * @throws {NetlinkError}
 */
export function removeElements(
  nl: Netlink,
  table: OwnTable,
  selections: readonly Selection[],
  mine: (owner: Owner) => boolean,
  heirsOf: (removed: readonly FoundElement[], others: readonly FoundElement[]) => readonly Heir[] = () => [],
  more: (mine: readonly FoundElement[], others: readonly FoundElement[]) => readonly Selection[] = () => [],
): FoundElement[] {
  return untilUndisturbed(() => {
    const view = viewOf(nl, table, placesIn(selections), []);
    const isMine = ({ owner }: FoundElement) => owner !== undefined && mine(owner);
    const seen = readElements(view, selections);
    const split = () => Object.groupBy(seen.values(), (each) => isMine(each) ? "mine" : "others");
    const first = split();
    for (const [id, each] of readElements(view, more(first.mine ?? [], first.others ?? []))) seen.set(id, each);
    const { mine: found = [], others = [] } = split();
    const heirs = heirsOf(found, others);
    const tx = transaction(nl);
    removeFrom(tx, table, [...found, ...heirs.map(({ from }) => from)]);
    for (const { from: { comment }, to: { set, key, value } } of heirs) {
      tx.addElements(table, set, [{ key, data: { value }, ...comment !== undefined && { comment } }]);
    }
    removeUnused(tx, view, found, []);
    tx.commit(view.generation);
    return found;
  });
}

/** Compares what is with what {@linkcode ensureElements} made, and whether rules were taken away. @throws {CniError} on the first difference */
export function checkElements(nl: Netlink, table: OwnTable, owner: Owner, wanted: readonly WantedElement[]): void {
  if (wanted.length === 0) return;
  const view = viewFor(nl, table, wanted);
  const { possible, present } = findPlaces(view, owner, wanted);
  for (const each of possible) {
    const found = present.get(identify(each));
    const isOthers = found !== undefined && !sameOwner(found.owner, owner);
    const fault = !found
      ? "is missing"
      : isOthers
      ? `belongs to ${found.owner ? describeOwner(found.owner) : "an unknown owner"}`
      : !sameContent(each, found)
      ? "leads elsewhere"
      : each.chain && listLostCompanions(view, each.chain.name).length > 0
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
  const lives = oneOf(valid.map((each) => ({ ...each, network })));
  return (owner) => owner.network === network && !lives(owner);
}

/** Sees at once all that may matter for what is wanted. */
function viewFor(nl: Netlink, table: OwnTable, wanted: readonly WantedElement[]): View {
  const places = placesIn(selectionOf(wanted));
  return viewOf(nl, table, places, [table.sentinel.chain, ...chainsOf(wanted).keys()]);
}

/**
 * What is wanted, at places that are not another attachment's of the same container, and what is at these places.
 *
 * Of several for one place, as an address that was given twice asks for, the first counts: the kernel refuses the whole batch for a second.
 */
function findPlaces(view: View, owner: Owner, wanted: readonly WantedElement[]) {
  const present = readElements(view, selectionOf(wanted));
  const waiting: WantedElement[] = [];
  const places = new Map(wanted.toReversed().map((each) => [identify(each), each]));
  const possible = [...places.values()].reverse().map((each): WantedElement => {
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
  for (const [id, element] of readElements(view, selectionOf(waiting))) present.set(id, element);
  // Then something else was asked for before, and there may be more of it than is seen here.
  const isAnother = possible.some((each) => {
    const found = present.get(identify(each));
    return found !== undefined && sameOwner(found.owner, owner) && !isAsWanted(each, found);
  });
  return { possible: isAnother ? possible.map(({ note: _, ...rest }) => rest) : possible, present };
}

function selectionOf(wanted: readonly WantedElement[]): Selection[] {
  return [...new Set(wanted.map(({ set }) => set))].map((set) => ({
    set,
    keys: wanted.filter((each) => each.set === set).map(({ key }) => key),
  }));
}

/** True if the element is the owner's already, with the same content. @throws {TakenError} */
function isSettled(wanted: WantedElement, found: FoundElement | undefined, owner: Owner): boolean {
  if (!found) return false;
  const own = sameOwner(found.owner, owner);
  if (!own && wanted.exclusive) throw new TakenError(wanted, found.owner);
  return own && isAsWanted(wanted, found);
}

function isAsWanted(wanted: WantedElement, found: FoundElement): boolean {
  return sameContent(wanted, found) && wanted.note === found.note;
}

function sameContent({ value, chain }: WantedElement, { data }: nft.Element): boolean {
  if (chain) return data?.verdict?.chain === chain.name;
  return value === undefined || (data?.value !== undefined && nft.hex(data.value) === nft.hex(value));
}

function removeFrom(tx: Transaction, table: OwnTable, found: readonly FoundElement[]): void {
  for (const [set, elements] of bySet(found)) tx.deleteElements(table, set, elements.map(({ key }) => ({ key })));
}

function addTo(tx: Transaction, table: OwnTable, missing: readonly WantedElement[], owner: Owner): void {
  const elementOf = ({ key, value, chain, note }: WantedElement): nft.Element => {
    return { key, comment: formatNoted(owner, note), ...dataOf(value, chain) };
  };
  for (const [set, elements] of bySet(missing)) tx.addElements(table, set, elements.map(elementOf));
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
  for (const each of elements) {
    const others = sets.get(each.set);
    if (others) others.push(each);
    else sets.set(each.set, [each]);
  }
  return sets;
}

/** Removes the chains to which nothing but the removed elements led. */
function removeUnused(
  tx: Transaction,
  view: View,
  removed: readonly FoundElement[],
  added: readonly WantedElement[],
): void {
  const led = new Map<string, number>();
  for (const { data } of removed) {
    const name = data?.verdict?.chain;
    if (name !== undefined && !added.some(({ chain }) => chain?.name === name)) led.set(name, (led.get(name) ?? 0) + 1);
  }
  removeUnusedChains(tx, view, led, new Set(chainsOf(added).keys()));
}
