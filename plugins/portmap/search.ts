/**
 * Where DEL looks for what ADD published: at the places that the request tells, whatever else is published on the host.
 *
 * @module
 */
import { type Cidr, familyOf, ipOf } from "../../ffi/address.ts";
import { ipField } from "../../ffi/nft/match.ts";
import { type FoundElement, hasEach } from "../kit/found_elements.ts";
import type { Place, Selection, WantedElement } from "../kit/owned_elements.ts";
import { type Owner, ownerText } from "../kit/owner.ts";
import type { PortmapConfig } from "./config.ts";
import { selectionsOf, wantedElements } from "./elements.ts";
import { standbySet } from "./standby.ts";

/** Where to look for what is to be withdrawn. */
export interface Search {
  readonly selections: readonly Selection[];
  /** Where to look besides, by what was found that is the container's, and what is not. */
  more?(mine: readonly FoundElement[], others: readonly FoundElement[]): readonly Selection[];
}

/** By keys as far as the request tells them; everywhere if it does not, or if something is not as it tells. */
export function searchFor(owner: Owner, config: PortmapConfig | undefined, addresses: readonly Cidr[]): Search {
  const everywhere = selectionsOf(ownerText(owner));
  if (!config || addresses.length === 0) return { selections: everywhere };
  const likely = likelyPlaces(config, addresses);
  if (likely) {
    return {
      selections: likely.selections,
      more: (mine) => hasEach(mine, likely.expected) ? standbySelections(mine, owner.containerId) : everywhere,
    };
  }
  if (config.mappings.length > 0 || !config.snat) return { selections: everywhere };
  // Whether the runtime only does not repeat the mappings, what there is tells.
  return {
    selections: hairpinPlaces(addresses),
    more: (mine, others) => mine.length + others.length > 0 ? everywhere : [],
  };
}

/** Where to look for what was published, if a request tells what its ADD was asked for. */
interface Likely {
  readonly selections: readonly Selection[];
  /** Each is in one of these places; where one is in none, something else was asked for. */
  readonly expected: readonly (readonly Place[])[];
}

/**
 * Where an ADD with this configuration published, or a similar one: with or without `snat` and conditions.
 *
 * @returns undefined if that cannot be told
 */
function likelyPlaces(config: PortmapConfig, addresses: readonly Cidr[]): Likely | undefined {
  const placesOf = ({ set, key, standby }: WantedElement) => [{ set, key }, ...standby ? [standby] : []];
  const wanted = wantedElements({ ...config, snat: true }, addresses);
  const isHairpin = ({ set }: Place) => set.startsWith("hairpin");
  const expected = config.snat ? wanted : wanted.filter((each) => !isHairpin(each));
  if (expected.length === 0) return undefined;
  const conditions = wanted.filter(({ set }) => set.includes("hostports"))
    .map(({ set, key }) => ({ set: set.replace("hostports", "conditions"), key }));
  const places = Map.groupBy([...wanted.flatMap(placesOf), ...conditions], ({ set }) => set);
  return {
    selections: [...places].map(([set, all]) => ({ set, keys: all.map(({ key }) => key) })),
    expected: expected.map(placesOf),
  };
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
