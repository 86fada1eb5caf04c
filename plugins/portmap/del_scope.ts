/**
 * The elements that a DEL has to read: those of the request's ports, whatever else is published on the host.
 *
 * @module
 */
import { type Cidr, familyOf, ipOf } from "../../ffi/address.ts";
import { ipField } from "../../ffi/nft/statements.ts";
import type { ElementSelector, FoundElement } from "../lib/ruleset/element_lookup.ts";
import type { WantedElement } from "../lib/ruleset/wanted_elements.ts";
import { type Owner, ownerText } from "../lib/protocol/owner.ts";
import type { PortmapConfig } from "./config.ts";
import { publishedElements, selectAllPublished } from "./elements.ts";
import { failoverSet } from "./failover.ts";

/** The elements to read for what is to be withdrawn. */
export interface DelScope {
  readonly selectors: readonly ElementSelector[];
  /** More elements to read, given the found ones that are the container's and the others. */
  moreSelectors?(owned: readonly FoundElement[], others: readonly FoundElement[]): readonly ElementSelector[];
}

/** By keys as far as the request tells them; everywhere if it does not, or if its ADD was another one. */
export function delScopeOf(owner: Owner, config: PortmapConfig | undefined, addresses: readonly Cidr[]): DelScope {
  const everywhere = selectAllPublished(ownerText(owner));
  if (!config || addresses.length === 0) return { selectors: everywhere };
  const elements = publishedElements(config, addresses);
  if (elements.length > 0) {
    return {
      selectors: selectorsByKey(elements),
      moreSelectors: (owned) => isComplete(owned, elements) ? failoverSelectors(owned, owner.containerId) : everywhere,
    };
  }
  if (config.mappings.length > 0 || !config.snat) return { selectors: everywhere };
  // Whether the runtime only does not repeat the mappings, what there is tells.
  return {
    selectors: hairpinSelectors(addresses),
    moreSelectors: (owned, others) => owned.length + others.length > 0 ? everywhere : [],
  };
}

/** Where these are, or stand by. */
function selectorsByKey(elements: readonly WantedElement[]): ElementSelector[] {
  const keys = elements.flatMap(({ set, key, failover }) => [{ set, key }, ...failover ? [failover] : []]);
  return [...Map.groupBy(keys, ({ set }) => set)].map(([set, entries]) => ({
    set,
    keys: entries.map(({ key }) => key),
  }));
}

/**
 * True if the container has nothing else, as far as what it has tells. That all of these are there would not say so: it may have been asked
 * for more.
 */
function isComplete(owned: readonly FoundElement[], elements: readonly WantedElement[]): boolean {
  const notes = new Set([...owned, ...elements].flatMap(({ note }) => note ?? []));
  return notes.size === 1 && owned.some(({ note }) => note !== undefined);
}

/**
 * Where a container has an element if it has any: nobody publishes on an address without saying who is to be hidden there, unless told not
 * to hide anybody.
 */
function hairpinSelectors(addresses: readonly Cidr[]): ElementSelector[] {
  return addresses.map((address) => ({ set: `hairpin${familyOf(address)}`, keys: [ipField(ipOf(address))] }));
}

/** Failover elements for these, on other networks of the container. */
function failoverSelectors(removed: readonly FoundElement[], containerId: string): ElementSelector[] {
  const families = ([4, 6] as const).filter((family) => removed.some(({ set }) => set.endsWith(`hostports${family}`)));
  return families.map((family) => ({ set: failoverSet(family), commented: containerId }));
}
