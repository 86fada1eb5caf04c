/**
 * Places that are few, such as those of questions that wait. Who has the most of them gives way.
 *
 * On a bridge, a container can ask with any address. So addresses alone are no measure: a bridge is.
 */
import type { Ip } from "../../../ffi/address.ts";

export interface Asker {
  /** By which its question came. */
  readonly link: string;
  /** The address from which it came, as it says. */
  readonly source: Ip;
  /** The addresses that no container has are one source: there is no end of them. */
  readonly isContainer: boolean;
}

export interface ShareLimits {
  readonly total: number;
  readonly ofContainer: number;
  /** Of all addresses of a link that no container has. */
  readonly ofStrangers: number;
}

export interface Shares<T extends Asker> {
  /**
   * Gives it a place.
   *
   * @returns who has none for that reason: the oldest of those who have the most, or itself if it is a stranger
   */
  enter(asker: T): T | undefined;
  leave(asker: T): void;
}

interface LinkShare<T> {
  count: number;
  /** The oldest first. */
  readonly bySource: Map<string, Set<T>>;
}

const STRANGERS = "";

export function newShares<T extends Asker>({ total, ofContainer, ofStrangers }: ShareLimits): Shares<T> {
  const byLink = new Map<string, LinkShare<T>>();
  let count = 0;

  const sourceOf = ({ source, isContainer }: T) => isContainer ? source : STRANGERS;
  const leave = (asker: T) => {
    const share = byLink.get(asker.link);
    const held = share?.bySource.get(sourceOf(asker));
    if (!share || !held?.delete(asker)) return;
    count--;
    share.count--;
    if (held.size === 0) share.bySource.delete(sourceOf(asker));
    if (share.count === 0) byLink.delete(asker.link);
  };
  const findOldestOfMost = (): T | undefined => {
    const share = largest(byLink.values(), (each) => each.count);
    const [oldest] = largest(share?.bySource.values() ?? [], (each) => each.size) ?? [];
    return oldest;
  };

  return {
    enter(asker) {
      const held = byLink.get(asker.link)?.bySource.get(sourceOf(asker)) ?? new Set<T>();
      // To refuse costs less than to begin anew.
      if (!asker.isContainer && held.size >= ofStrangers) return asker;
      const [oldest] = held.size >= ofContainer ? held : [];
      const leaver = oldest ?? (count >= total ? findOldestOfMost() : undefined);
      if (leaver) leave(leaver);
      const share = byLink.get(asker.link) ?? { count: 0, bySource: new Map<string, Set<T>>() };
      byLink.set(asker.link, share);
      const places = share.bySource.get(sourceOf(asker)) ?? new Set<T>();
      share.bySource.set(sourceOf(asker), places.add(asker));
      share.count++;
      count++;
      return leaver;
    },
    leave,
  };
}

function largest<T>(values: Iterable<T>, sizeOf: (value: T) => number): T | undefined {
  let found: T | undefined;
  for (const value of values) if (!found || sizeOf(value) > sizeOf(found)) found = value;
  return found;
}
