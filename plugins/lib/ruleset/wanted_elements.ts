import type * as nft from "../../../ffi/nft/objects.ts";
import { describeOwner, type Owner, sameOwner } from "../model/owner.ts";
import { type ElementSelector, fetchElements, type FoundElement } from "./element_lookup.ts";
import type { SharedChain } from "./shared_chains.ts";
import { elementId, type ElementKey, type RulesetSnapshot } from "./snapshot.ts";

export interface WantedElement {
  readonly set: string;
  readonly key: Uint8Array;
  /** In a map: what the key leads to. */
  readonly value?: Uint8Array;
  /** In a verdict map: the chain that the key leads to. */
  readonly chain?: SharedChain;
  /** A stricter chain of this name, kept if the owner's element leads there. */
  readonly alternativeChain?: (name: string) => SharedChain | undefined;
  /** Names it in errors: `host port 8080/tcp`. */
  readonly title: string;
  /** Attachments of earlier releases may lack it: their records tell. */
  readonly isNew?: boolean;
  /** If true, another owner keeps it. Else it is taken over: that owner's DEL is late. */
  readonly exclusive?: boolean;
  /** One word after the owner. */
  readonly note?: string;
  /** Added instead if another attachment keeps this one. */
  readonly failover?: ElementKey & Pick<WantedElement, "chain">;
  /** Whether another attachment keeps this one. */
  readonly yieldsTo?: (holder: Owner, owner: Owner) => boolean;
}

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

export interface Match {
  readonly element: WantedElement;
  readonly found: FoundElement | undefined;
}

/**
 * If another attachment keeps an element (`kept`), its failover element replaces it.
 *
 * Of several with one key the first counts: the kernel refuses a batch with two.
 */
export function matchWanted(
  snapshot: RulesetSnapshot,
  owner: Owner,
  wanted: readonly WantedElement[],
): { readonly matches: readonly Match[]; readonly kept: readonly FoundElement[] } {
  const present = fetchElements(snapshot, selectorsFor(wanted));
  const seen = new Set<string>();
  const matches: Match[] = [];
  const kept: FoundElement[] = [];
  const failovers: WantedElement[] = [];
  for (const element of wanted) {
    const id = elementId(element);
    if (seen.has(id)) continue;
    seen.add(id);
    const found = present.get(id);
    if (sameOwner(found?.owner, owner)) {
      const chain = found?.data?.verdict?.chain;
      const alternative = chain === undefined ? undefined : element.alternativeChain?.(chain);
      matches.push({ element: alternative ? { ...element, chain: alternative } : element, found });
    } else if (found?.owner && element.yieldsTo?.(found.owner, owner)) {
      const { failover, note, title } = element;
      if (!failover) continue;
      kept.push(found);
      failovers.push({ ...failover, ...note !== undefined && { note }, title: `${title} (failover)` });
    } else matches.push({ element, found });
  }
  const presentFailovers = fetchElements(snapshot, selectorsFor(failovers));
  const failoverMatches = failovers.map((element) => ({ element, found: presentFailovers.get(elementId(element)) }));
  return { matches: failoverMatches.concat(matches), kept };
}

export function selectorsFor(wanted: readonly WantedElement[]): ElementSelector[] {
  return [...Map.groupBy(wanted, ({ set }) => set)]
    .map(([set, elements]) => ({ set, keys: elements.map(({ key }) => key) }));
}

/** @throws {ElementInUseError} */
export function isUpToDate({ element, found }: Match, owner: Owner): boolean {
  if (!found) return false;
  const isOwned = sameOwner(found.owner, owner);
  if (!isOwned && element.exclusive) throw new ElementInUseError(element, found);
  return isOwned && hasSameTarget(element, found);
}

export function hasSameTarget({ value, chain }: WantedElement, { data }: nft.Element): boolean {
  if (chain) return data?.verdict?.chain === chain.name;
  return value === undefined || (data?.value !== undefined && Buffer.compare(data.value, value) === 0);
}

export function sharedChainsOf(wanted: readonly WantedElement[]): Map<string, SharedChain> {
  const chains = new Map<string, SharedChain>();
  for (const { chain } of wanted) if (chain) chains.set(chain.name, chain);
  return chains;
}
