/**
 * Where DEL looks for what ADD published: at the places that the request tells, whatever else is published on the host.
 *
 * @module
 */
import { type Cidr, familyOf, ipOf } from "../../ffi/address.ts";
import { ipField } from "../../ffi/nft/statements.ts";
import type { FoundElement, Selection, WantedElement } from "../lib/ruleset/elements.ts";
import { type Owner, ownerText } from "../lib/protocol/owner.ts";
import type { PortmapConfig } from "./config.ts";
import { selectionsOf, wantedElements } from "./elements.ts";
import { standbySet } from "./failover.ts";

/** Where to look for what is to be withdrawn. */
export interface Search {
  readonly selections: readonly Selection[];
  /** Where to look besides, by what was found that is the container's, and what is not. */
  more?(mine: readonly FoundElement[], others: readonly FoundElement[]): readonly Selection[];
}

/** By keys as far as the request tells them; everywhere if it does not, or if its ADD was another one. */
export function searchFor(owner: Owner, config: PortmapConfig | undefined, addresses: readonly Cidr[]): Search {
  const everywhere = selectionsOf(ownerText(owner));
  if (!config || addresses.length === 0) return { selections: everywhere };
  const wanted = wantedElements(config, addresses);
  if (wanted.length > 0) {
    return {
      selections: placesOf(wanted),
      more: (mine) => isAllOf(mine, wanted) ? standbySelections(mine, owner.containerId) : everywhere,
    };
  }
  if (config.mappings.length > 0 || !config.snat) return { selections: everywhere };
  // Whether the runtime only does not repeat the mappings, what there is tells.
  return {
    selections: hairpinPlaces(addresses),
    more: (mine, others) => mine.length + others.length > 0 ? everywhere : [],
  };
}

/** Where these are, or stand by. */
function placesOf(wanted: readonly WantedElement[]): Selection[] {
  const places = wanted.flatMap(({ set, key, standby }) => [{ set, key }, ...standby ? [standby] : []]);
  return [...Map.groupBy(places, ({ set }) => set)].map(([set, all]) => ({ set, keys: all.map(({ key }) => key) }));
}

/**
 * True if the container has nothing else, as far as what it has tells. That all of these are there would not say so: it may have been asked
 * for more.
 */
function isAllOf(mine: readonly FoundElement[], wanted: readonly WantedElement[]): boolean {
  const notes = new Set([...mine, ...wanted].flatMap(({ note }) => note ?? []));
  return notes.size === 1 && mine.some(({ note }) => note !== undefined);
}

/**
 * Where a container has an element if it has any: nobody publishes on an address without saying who is to be hidden there, unless told not
 * to hide anybody.
 */
function hairpinPlaces(addresses: readonly Cidr[]): Selection[] {
  return addresses.map((address) => ({ set: `hairpin${familyOf(address)}`, keys: [ipField(ipOf(address))] }));
}

/** Where to look for what stands by for these, on other networks of the container. */
function standbySelections(removed: readonly FoundElement[], containerId: string): Selection[] {
  const families = ([4, 6] as const).filter((family) => removed.some(({ set }) => set.endsWith(`hostports${family}`)));
  return families.map((family) => ({ set: standbySet(family), commented: containerId }));
}
