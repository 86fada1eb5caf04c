/**
 * Elements that an attachment needs, compared with those that are there.
 *
 * @module
 */
import * as nft from "../../../ffi/nft/objects.ts";
import { describeOwner, type Owner, sameOwner } from "../protocol/owner.ts";
import { type ElementSelector, fetchElements, type FoundElement } from "./element_lookup.ts";
import type { SharedChain } from "./shared_chains.ts";
import { elementId, type ElementKey, type RulesetSnapshot } from "./snapshot.ts";

/** An element that an attachment needs. */
export interface WantedElement {
  readonly set: string;
  readonly key: Uint8Array;
  /** In a map: what the key leads to. */
  readonly value?: Uint8Array;
  /** In a verdict map: where packets go on. */
  readonly chain?: SharedChain;
  /** A chain that does what this one is for, and more: if the owner's element leads there, it stays so. */
  readonly alternativeChain?: (name: string) => SharedChain | undefined;
  /** What it is for, in the words of an error: `host port 8080/tcp`. */
  readonly title: string;
  /** True if another owner keeps it; else it is taken from the other, whose DEL is late. */
  readonly exclusive?: boolean;
  /** What the element tells besides its owner: one word. */
  readonly note?: string;
  /** The element to add instead, in a set that no rule uses, while another attachment has this one and keeps it. */
  readonly failover?: ElementKey & Pick<WantedElement, "chain">;
  /** Whether another attachment keeps this one; then the one to add instead, if there is one, is enough. */
  readonly yieldsTo?: (holder: Owner, owner: Owner) => boolean;
}

/** Another attachment has what this one needs. */
export class ElementInUseError extends Error {
  override readonly name: string = "ElementInUseError";
  readonly element: WantedElement;
  readonly found: FoundElement;

  constructor(element: WantedElement, found: FoundElement) {
    const { owner } = found;
    super(`Cannot use ${element.title}: it belongs to ${owner ? describeOwner(owner) : "an unknown owner"}`);
    this.element = element;
    this.found = found;
  }
}

/**
 * The wanted elements, with a failover element for each that another attachment keeps, what is present, and what is kept.
 *
 * Of several with one key, as an address that was given twice asks for, the first counts: the kernel refuses the whole batch for a second.
 */
export function resolveWanted(snapshot: RulesetSnapshot, owner: Owner, wanted: readonly WantedElement[]) {
  const present = fetchElements(snapshot, selectorsFor(wanted));
  const failoverElements: WantedElement[] = [];
  const keptElements: FoundElement[] = [];
  const wantedById = new Map(wanted.toReversed().map((element) => [elementId(element), element]));
  const resolved = [...wantedById.values()].reverse().flatMap((element): readonly WantedElement[] => {
    const found = present.get(elementId(element));
    const currentOwner = found?.owner;
    const currentChain = sameOwner(currentOwner, owner) ? found?.data?.verdict?.chain : undefined;
    const alternative = currentChain === undefined ? undefined : element.alternativeChain?.(currentChain);
    if (alternative) return [{ ...element, chain: alternative }];
    if (!currentOwner || sameOwner(currentOwner, owner) || !element.yieldsTo?.(currentOwner, owner)) return [element];
    if (!element.failover) return [];
    const { note } = element;
    const failoverElement = {
      ...element.failover,
      ...note !== undefined && { note },
      title: `${element.title} (failover)`,
    };
    failoverElements.push(failoverElement);
    keptElements.push(found);
    return [failoverElement];
  });
  for (const [id, element] of fetchElements(snapshot, selectorsFor(failoverElements))) present.set(id, element);
  return { resolved, present, keptElements };
}

export function selectorsFor(wanted: readonly WantedElement[]): ElementSelector[] {
  return [...new Set(wanted.map(({ set }) => set))].map((set) => ({
    set,
    keys: wanted.filter((element) => element.set === set).map(({ key }) => key),
  }));
}

/** True if the element is the owner's already, with the same content. @throws {ElementInUseError} */
export function isUpToDate(wanted: WantedElement, found: FoundElement | undefined, owner: Owner): boolean {
  if (!found) return false;
  const isOwned = sameOwner(found.owner, owner);
  if (!isOwned && wanted.exclusive) throw new ElementInUseError(wanted, found);
  return isOwned && hasSameTarget(wanted, found);
}

export function hasSameTarget({ value, chain }: WantedElement, { data }: nft.Element): boolean {
  if (chain) return data?.verdict?.chain === chain.name;
  return value === undefined || (data?.value !== undefined && nft.formatHex(data.value) === nft.formatHex(value));
}

/** The chains that elements lead to, each once. */
export function sharedChainsOf(wanted: readonly WantedElement[]): Map<string, SharedChain> {
  return new Map(wanted.flatMap(({ chain }) => chain ? [[chain.name, chain]] : []));
}
