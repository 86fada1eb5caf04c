/**
 * Elements as they are found: by their keys where these are known, else by looking through a set.
 *
 * @module
 */
import * as nft from "../../../ffi/nft/objects.ts";
import { noteIn, type Owner, parseOwner } from "../protocol/owner.ts";
import { identify, type Place, type View } from "./snapshot.ts";

/** Elements to look at: those with these keys, or all of the set. */
export interface Selection {
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
const MANY_KEYS = 64;

/** The places that are looked at one by one. */
export function placesIn(selections: readonly Selection[]): Place[] {
  return selections.flatMap(({ set, keys = [] }) => keys.length <= MANY_KEYS ? keys.map((key) => ({ set, key })) : []);
}

/** The elements that are selected, by their places as text. @throws {NetlinkError} */
export function readElements(view: View, selections: readonly Selection[]): Map<string, FoundElement> {
  const found = new Map<string, FoundElement>();
  view.look(placesIn(selections), []);
  for (const { set, keys, commented } of selections) {
    const elements = keys && keys.length <= MANY_KEYS
      ? keys.flatMap((key) => view.element({ set, key }) ?? [])
      : nft.listElements(view.nl, view.table, set, commented);
    const wanted = keys && keys.length > MANY_KEYS ? new Set(keys.map(nft.hex)) : undefined;
    for (const each of elements) {
      if (wanted && !wanted.has(nft.hex(each.key))) continue;
      const { comment = "" } = each;
      const element = { ...each, set, owner: parseOwner(comment), note: noteIn(comment) };
      found.set(identify(element), element);
    }
  }
  return found;
}
