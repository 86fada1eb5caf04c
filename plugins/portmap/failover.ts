/**
 * Failover elements: an engine publishes the same ports on all networks of a container. The first gets them; the others wait in a set
 * that no rule uses.
 *
 * Ports with conditions have no failover, since each network may have other conditions.
 */
import { type Ip, ipFromBytes } from "../../ffi/address.ts";
import { concatenation, ipField } from "../../ffi/nft/statements.ts";
import { formatHex } from "../../ffi/nft/objects.ts";
import type { FoundElement } from "../lib/ruleset/element_lookup.ts";
import { type Failover, isAwaited, type PromotedElement, type Promotion } from "../lib/ruleset/elements.ts";
import type { ElementKey } from "../lib/ruleset/snapshot.ts";
import type { Owner } from "../lib/protocol/owner.ts";

export function failoverSet(family: 4 | 6): string {
  return `hostports_standby${family}`;
}

/**
 * The failover element of a port. Its key holds all that it becomes, so several can wait for one port.
 *
 * @param hostAddress the one that it is published on, if not on all
 * @param port protocol and port of the host
 * @param target address and port of the container
 */
export function failoverKey(
  family: 4 | 6,
  hostAddress: Ip | undefined,
  port: Uint8Array,
  target: Uint8Array,
): ElementKey {
  const address = hostAddress === undefined ? new Uint8Array(family === 4 ? 4 : 16) : ipField(hostAddress);
  return { set: failoverSet(family), key: concatenation(address, port, target) };
}

/**
 * @param findSource the host's address towards a container
 * @param containerId the only container whose ports are removed
 */
export function portFailover(findSource: (address: Ip) => Ip | undefined, containerId?: string): Failover {
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
    promotions: (removed, others) =>
      promotionsOf(removed, others).map((promotion) => withLoopback(promotion, removed, findSource)),
  };
}

/** Calls from 127.0.0.1 reach the new port if they reached the old one. */
function withLoopback(
  { from, to }: Promotion,
  removed: readonly FoundElement[],
  findSource: (address: Ip) => Ip | undefined,
): Promotion {
  const loopback = to.flatMap(({ set, key, data }): PromotedElement[] => {
    const loopbackSet = set.replace("hostports", "loopback");
    const wasReached = removed.some((element) => element.set === loopbackSet && Buffer.compare(element.key, key) === 0);
    const source = wasReached && data.value ? findSource(ipFromBytes(data.value.subarray(0, 4))) : undefined;
    return source ? [{ set: loopbackSet, key, data: { value: ipField(source) } }] : [];
  });
  return { from, to: [...to, ...loopback] };
}

/** The failover elements of the same container that replace removed ports. */
function promotionsOf(removed: readonly FoundElement[], others: readonly FoundElement[]): Promotion[] {
  const candidates = others.flatMap((from) => {
    const to = promotionTarget(from);
    return to ? [{ from, to: [to] }] : [];
  });
  // The first of several.
  const byKey = new Map(
    candidates.toReversed().map((promotion) => [promotionKey(promotion.to[0]!, promotion.from.owner), promotion]),
  );
  return removed.flatMap((element) => byKey.get(promotionKey(element, element.owner)) ?? []);
}

function promotionKey({ set, key }: ElementKey, owner: Owner | undefined): string {
  return `${set} ${formatHex(key)} ${owner?.containerId}`;
}

/** The published port that a failover element becomes. */
function promotionTarget({ set, key }: FoundElement): PromotedElement | undefined {
  const family = ([4, 6] as const).find((candidate) => set === failoverSet(candidate));
  if (!family) return undefined;
  const addressSize = family === 4 ? 4 : 16;
  const valueAt = key.length - addressSize - 4;
  const value = key.subarray(valueAt);
  if (key.subarray(0, addressSize).some((byte) => byte !== 0)) {
    return { set: `hostip_hostports${family}`, key: key.subarray(0, valueAt), data: { value } };
  }
  return { set: `hostports${family}`, key: key.subarray(addressSize, valueAt), data: { value } };
}
