/**
 * Fetches elements: by their keys where these are known, else by listing the set.
 *
 * @module
 */
import * as nft from "../../../ffi/nft/objects.ts";
import { type Owner, parseNote, parseOwner } from "../protocol/owner.ts";
import { elementId, type ElementKey, type RulesetSnapshot } from "./snapshot.ts";

/** Elements to fetch: those with these keys, or all of the set. */
export interface ElementSelector {
  readonly set: string;
  readonly keys?: readonly Uint8Array[];
  /** Without keys: only those whose comment holds this text, which are found quickly among many others. */
  readonly commented?: string;
}

/** An element as it was found. */
export interface FoundElement extends nft.Element {
  readonly set: string;
  readonly owner: Owner | undefined;
  readonly note: string | undefined;
}

/** From about here on, listing a whole set is faster than asking for one element after the other. */
export const LIST_ALL_THRESHOLD = 64;

/** The keys that are fetched one by one. */
export function elementKeysOf(selectors: readonly ElementSelector[]): ElementKey[] {
  return selectors.flatMap(({ set, keys = [] }) =>
    keys.length <= LIST_ALL_THRESHOLD ? keys.map((key) => ({ set, key })) : []
  );
}

/** The selected elements by {@linkcode elementId}. @throws {NetlinkError} */
export function fetchElements(
  snapshot: RulesetSnapshot,
  selectors: readonly ElementSelector[],
): Map<string, FoundElement> {
  const found = new Map<string, FoundElement>();
  snapshot.fetch(elementKeysOf(selectors), []);
  for (const { set, keys, commented } of selectors) {
    const elements = keys && keys.length <= LIST_ALL_THRESHOLD
      ? keys.flatMap((key) => snapshot.element({ set, key }) ?? [])
      : nft.listElements(snapshot.nl, snapshot.table, set, commented);
    const wantedKeys = keys && keys.length > LIST_ALL_THRESHOLD ? new Set(keys.map(nft.formatHex)) : undefined;
    for (const listed of elements) {
      if (wantedKeys && !wantedKeys.has(nft.formatHex(listed.key))) continue;
      const { comment = "" } = listed;
      const element = { ...listed, set, owner: parseOwner(comment), note: parseNote(comment) };
      found.set(elementId(element), element);
    }
  }
  return found;
}
