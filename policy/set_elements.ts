/** Elements of sets that came and went since the kernel was told. @module */
import type { Ip } from "../ffi/address.ts";
import type { PeerSet, PortElement, SetChange } from "../plugins/lib/policy/desired.ts";

interface Delta {
  readonly element: Ip | PortElement;
  readonly isAdded: boolean;
}

export class ElementChanges {
  readonly #sets = new Map<string, Map<string, Delta>>();
  /** How many elements each set has, as far as the kernel was told. */
  readonly #sizes = new Map<string, number>();

  /** How many elements all sets have. */
  get total(): number {
    return this.#sizes.values().reduce((sum, size) => sum + size, 0);
  }

  /** The kernel is told of a new set. */
  begin(key: string, set: PeerSet): void {
    this.#sizes.set(key, sizeOf(set));
  }

  /** What comes and goes is no change. */
  note(set: string, element: Ip | PortElement, isAdded: boolean): void {
    const deltas = this.#sets.get(set) ?? new Map<string, Delta>();
    this.#sets.set(set, deltas);
    const id = typeof element === "string" ? element : `${element.ip} ${element.protocol} ${element.port}`;
    const before = deltas.get(id);
    if (before && before.isAdded !== isAdded) deltas.delete(id);
    else deltas.set(id, { element, isAdded });
    if (deltas.size === 0) this.#sets.delete(set);
  }

  forget(set: string): void {
    this.#sizes.delete(set);
    this.#sets.delete(set);
  }

  /** @returns all of them, and begins anew */
  take(): SetChange[] {
    const changes = [...this.#sets].map(([set, deltas]): SetChange => {
      const [added, removed] = [true, false].map((isAdded) =>
        [...deltas.values()].filter((delta) => delta.isAdded === isAdded).map(({ element }) => element)
      );
      this.#sizes.set(set, (this.#sizes.get(set) ?? 0) + added!.length - removed!.length);
      return {
        set,
        ...added!.length > 0 && { added: peerSetOf(added!) },
        ...removed!.length > 0 && { removed: peerSetOf(removed!) },
      };
    });
    this.#sets.clear();
    return changes;
  }
}

function sizeOf(set: PeerSet): number {
  let count = 0;
  for (const _ of elementsIn(set)) count++;
  return count;
}

function elementsIn(set: PeerSet): Iterable<unknown> {
  switch (set.kind) {
    case "addresses":
      return set.ips;
    case "blocks":
      return set.intervals;
    case "ranges":
      return set.ranges;
    case "ports":
      return set.elements;
  }
}

function peerSetOf(elements: readonly (Ip | PortElement)[]): PeerSet {
  return typeof elements[0] === "string"
    ? { kind: "addresses", ips: elements as readonly Ip[] }
    : { kind: "ports", elements: elements as readonly PortElement[] };
}
