import * as nft from "../../../ffi/nft/objects.ts";
import { type Owner, parseNote, parseOwner } from "../model/owner.ts";
import { elementId, type ElementKey, type RulesetSnapshot } from "./snapshot.ts";

/** Elements with these keys; without keys, all of the set. */
export interface ElementSelector {
  readonly set: string;
  readonly keys?: readonly Uint8Array[];
  /** Without keys: only those whose comment holds this text. */
  readonly commented?: string;
}

export interface FoundElement extends nft.Element {
  readonly set: string;
  readonly owner: Owner | undefined;
  readonly note: string | undefined;
}

/** With more keys, listing the set is faster than a query for each. */
export const LIST_ALL_THRESHOLD = 64;

const isListed = ({ keys }: ElementSelector): boolean => !keys || keys.length > LIST_ALL_THRESHOLD;

export function elementKeysOf(selectors: readonly ElementSelector[]): ElementKey[] {
  return selectors.flatMap((selector) =>
    isListed(selector) ? [] : selector.keys!.map((key) => ({ set: selector.set, key }))
  );
}

/** The keys are those of {@linkcode elementId}. A listed set also yields elements that were not selected. */
export function fetchElements(
  snapshot: RulesetSnapshot,
  selectors: readonly ElementSelector[],
): Map<string, FoundElement> {
  const found = new Map<string, FoundElement>();
  snapshot.fetch(elementKeysOf(selectors), []);
  for (const selector of selectors) {
    const { set, keys = [], commented } = selector;
    const elements = isListed(selector)
      ? nft.listElements(snapshot.nl, snapshot.table, set, commented)
      : keys.flatMap((key) => snapshot.element({ set, key }) ?? []);
    for (const element of elements) {
      const { comment = "" } = element;
      found.set(elementId({ set, key: element.key }), {
        ...element,
        set,
        owner: parseOwner(comment),
        note: parseNote(comment),
      });
    }
  }
  return found;
}
