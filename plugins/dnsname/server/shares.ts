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
  /** For all addresses of a link that no container has. */
  readonly ofStrangers: number;
}

interface LinkShare<T> {
  count: number;
  /** Sets keep an order: the oldest place of each source is the first. */
  readonly bySource: Map<string, Set<T>>;
}

const STRANGERS = "";

export class Shares<T extends Asker> {
  readonly #limits: ShareLimits;
  readonly #byLink = new Map<string, LinkShare<T>>();
  #count = 0;

  constructor(limits: ShareLimits) {
    this.#limits = limits;
  }

  /** @returns who has no place for that reason: the oldest of those who have the most, or a stranger itself */
  enter(asker: T): T | undefined {
    const { total, ofContainer, ofStrangers } = this.#limits;
    const held = this.#byLink.get(asker.link)?.bySource.get(sourceOf(asker)) ?? new Set<T>();
    // To refuse costs less than to begin anew.
    if (!asker.isContainer && held.size >= ofStrangers) return asker;
    const [oldest] = held.size >= ofContainer ? held : [];
    const leaver = oldest ?? (this.#count >= total ? this.#findOldestOfMost() : undefined);
    if (leaver) this.leave(leaver);
    this.#add(asker);
    return leaver;
  }

  leave(asker: T): void {
    const share = this.#byLink.get(asker.link);
    const held = share?.bySource.get(sourceOf(asker));
    if (!share || !held?.delete(asker)) return;
    this.#count--;
    share.count--;
    if (held.size === 0) share.bySource.delete(sourceOf(asker));
    if (share.count === 0) this.#byLink.delete(asker.link);
  }

  #add(asker: T): void {
    const share = this.#byLink.get(asker.link) ?? { count: 0, bySource: new Map<string, Set<T>>() };
    this.#byLink.set(asker.link, share);
    const places = share.bySource.get(sourceOf(asker)) ?? new Set<T>();
    share.bySource.set(sourceOf(asker), places.add(asker));
    share.count++;
    this.#count++;
  }

  #findOldestOfMost(): T | undefined {
    const share = largest(this.#byLink.values(), (each) => each.count);
    const [oldest] = largest(share?.bySource.values() ?? [], (each) => each.size) ?? [];
    return oldest;
  }
}

const sourceOf = ({ source, isContainer }: Asker): string => isContainer ? source : STRANGERS;

function largest<T>(values: Iterable<T>, sizeOf: (value: T) => number): T | undefined {
  let found: T | undefined;
  for (const value of values) if (!found || sizeOf(value) > sizeOf(found)) found = value;
  return found;
}
