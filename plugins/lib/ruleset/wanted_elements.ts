/** Elements that an attachment needs, compared with those that are there. */
import type * as nft from "../../../ffi/nft/objects.ts";
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
  /** One word that stands behind the owner. */
  readonly note?: string;
  /** The element to add instead, in a set that no rule uses, while another attachment has this one and keeps it. */
  readonly failover?: ElementKey & Pick<WantedElement, "chain">;
  /** Whether another attachment keeps this one; then the failover element, if there is one, is enough. */
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

/** A wanted element and the one that has its key. */
export interface Match {
  readonly element: WantedElement;
  readonly found: FoundElement | undefined;
}

/**
 * Finds the wanted elements. In place of one that another attachment keeps, there is the failover element; `kept` has the other's.
 *
 * Of several with one key, as an address that was given twice asks for, the first counts: the kernel refuses the whole batch for a second.
 *
 * @throws {NetlinkError}
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

/** True if the element is the owner's already, with the same content. @throws {ElementInUseError} */
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

/** The chains that elements lead to, each once. */
export function sharedChainsOf(wanted: readonly WantedElement[]): Map<string, SharedChain> {
  const chains = new Map<string, SharedChain>();
  for (const { chain } of wanted) if (chain) chains.set(chain.name, chain);
  return chains;
}
