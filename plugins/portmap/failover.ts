/**
 * Ports of a container on several networks: an engine asks all of them to publish the same ones. The first does; the others keep failover
 * elements. They are in a set that no rule uses, so they cost packets nothing and are visible in the ruleset.
 *
 * Ports with conditions have no failover: the outcome would depend on the conditions of all these networks.
 */
import { type Ip, ipFromBytes } from "../../ffi/address.ts";
import { concatenation, ipField } from "../../ffi/nft/statements.ts";
import { formatHex } from "../../ffi/nft/objects.ts";
import type { FoundElement } from "../lib/ruleset/element_lookup.ts";
import { type Failover, isAwaited, type PromotedElement, type Promotion } from "../lib/ruleset/elements.ts";
import type { ElementKey } from "../lib/ruleset/snapshot.ts";
import type { Owner } from "../lib/protocol/owner.ts";

/** The set of failover elements. */
export function failoverSet(family: 4 | 6): string {
  return `hostports_standby${family}`;
}

/**
 * The failover element of a port: its key is all that a published port consists of, so that several may wait for one.
 *
 * @param hostAddress the address that it is published on, if not on all
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
 * What takes the place of published ports of one container, or of many.
 *
 * @param findSource the address of the host by which it reaches one of a container
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

/** Where calls from 127.0.0.1 reached the removed port, they reach what takes its place. */
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

/** For each published port that was removed, what stands by for it on another network of the same container, if anything. */
function promotionsOf(removed: readonly FoundElement[], others: readonly FoundElement[]): Promotion[] {
  const candidates = others.flatMap((from) => {
    const to = promotionTarget(from);
    return to ? [{ from, to: [to] }] : [];
  });
  // Of several the first.
  const byKey = new Map(
    candidates.toReversed().map((promotion) => [promotionKey(promotion.to[0]!, promotion.from.owner), promotion]),
  );
  return removed.flatMap((element) => byKey.get(promotionKey(element, element.owner)) ?? []);
}

function promotionKey({ set, key }: ElementKey, owner: Owner | undefined): string {
  return `${set} ${formatHex(key)} ${owner?.containerId}`;
}

/** The published port that an element of the set stands by for; `undefined` for elements of other sets. */
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
