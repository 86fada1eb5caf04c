/**
 * An engine publishes the same ports on all networks of a container. The first network gets them; the others' failover elements wait in a
 * set that no rule uses.
 *
 * Ports with conditions have no failover, since each network may have other conditions.
 */
import { ipBytes, ipFromBytes } from "../../ffi/address.ts";

import type { FoundElement } from "../lib/ruleset/element_lookup.ts";
import { type Failover, isAwaited, type PromotedElement } from "../lib/ruleset/elements.ts";
import { failoverSet, parseFailoverElement } from "../lib/ruleset/port_elements.ts";
import { elementId, type ElementKey } from "../lib/ruleset/snapshot.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { findSource } from "./loopback.ts";
import type { Owner } from "../lib/model/owner.ts";

/** @param containerId limits the removal to this container's ports */
export function portFailover(host: Netns, containerId?: string): Failover {
  return {
    selectors(removed) {
      const families = ([4, 6] as const).filter((family) =>
        removed.some((element) => isAwaited(element) && element.set.endsWith(`hostports${family}`))
      );
      return families.map((family) => ({
        set: failoverSet(family),
        ...containerId !== undefined && { commented: containerId },
      }));
    },
    promotions(removed, others) {
      const promotions = new Map<string, { from: FoundElement; to: PromotedElement }>();
      for (const from of others) {
        const to = parseFailoverElement(from);
        const id = to && containerPortId(to, from.owner);
        if (id !== undefined && !promotions.has(id)) promotions.set(id, { from, to: to! });
      }
      if (promotions.size === 0) return [];
      const removedIds = new Set(removed.map(elementId));
      return removed.flatMap((element) => {
        const { from, to } = promotions.get(containerPortId(element, element.owner)) ?? {};
        return from && to ? [{ from, to: [to, ...loopbackElement(to, removedIds, host)] }] : [];
      });
    },
  };
}

/** Ports move only between networks of one container. */
const containerPortId = (key: ElementKey, owner: Owner | undefined): string =>
  `${elementId(key)} ${owner?.containerId}`;

/** Calls from 127.0.0.0/8 reach the new port if they reached the old one. */
function loopbackElement(
  { set, key, data }: PromotedElement,
  removed: ReadonlySet<string>,
  host: Netns,
): PromotedElement[] {
  const loopback = { set: set.replace("hostports", "loopback"), key };
  const source = removed.has(elementId(loopback)) && data.value
    ? findSource(host, ipFromBytes(data.value.subarray(0, 4)))
    : undefined;
  return source ? [{ ...loopback, data: { value: ipBytes(source) } }] : [];
}
