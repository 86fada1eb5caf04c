import { broadcastOf, type Cidr, familyOf, type Ip, ipBytes, ipOf } from "../ffi/address.ts";
import type { ClusterNode } from "./node.ts";

/** A range of a node's pods. */
export interface PodRange {
  readonly node: ClusterNode;
  readonly cidr: Cidr;
  readonly first: bigint;
  readonly last: bigint;
}

/** The ranges of all nodes, and which of them overlap. */
export class PodRanges {
  /** By their first address. */
  readonly #sorted: PodRange[] = [];
  /** How many ranges have how many addresses. Most clusters have two sizes, one for each family. */
  readonly #sizes = new Map<bigint, number>();

  add(node: ClusterNode): void {
    for (const cidr of node.podCidrs) {
      const range = rangeOf(node, cidr);
      this.#sorted.splice(this.#indexOf(range.first), 0, range);
      const size = sizeOf(range);
      this.#sizes.set(size, (this.#sizes.get(size) ?? 0) + 1);
    }
  }

  remove(node: ClusterNode): void {
    for (const cidr of node.podCidrs) {
      const { first, last } = rangeOf(node, cidr);
      let at = this.#indexOf(first);
      while (this.#sorted[at]!.node.uid !== node.uid || this.#sorted[at]!.last !== last) at++;
      const size = sizeOf(this.#sorted.splice(at, 1)[0]!);
      const count = this.#sizes.get(size)! - 1;
      if (count === 0) this.#sizes.delete(size);
      else this.#sizes.set(size, count);
    }
  }

  /** The ranges of other nodes that have addresses of `cidr`. */
  overlapping(node: ClusterNode, cidr: Cidr): PodRange[] {
    const { first, last } = rangeOf(node, cidr);
    const found = this.#startingIn(first, last);
    // Of two ranges with common addresses, one contains the other.
    for (const size of this.#sizes.keys()) {
      const start = first - first % size;
      if (start < first) found.push(...this.#startingIn(start, start).filter((range) => sizeOf(range) === size));
    }
    return found.filter((range) => range.node.uid !== node.uid);
  }

  #startingIn(first: bigint, last: bigint): PodRange[] {
    const found: PodRange[] = [];
    for (let at = this.#indexOf(first); at < this.#sorted.length && this.#sorted[at]!.first <= last; at++) {
      found.push(this.#sorted[at]!);
    }
    return found;
  }

  /** The index of the first range that does not start before. */
  #indexOf(first: bigint): number {
    let low = 0;
    let high = this.#sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#sorted[middle]!.first < first) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

const sizeOf = ({ first, last }: PodRange): bigint => last - first + 1n;

const rangeOf = (node: ClusterNode, cidr: Cidr): PodRange => ({
  node,
  cidr,
  first: placeOf(ipOf(cidr)),
  last: placeOf(broadcastOf(cidr)),
});

/** One order for both families: IPv6 begins after IPv4. */
function placeOf(ip: Ip): bigint {
  let place = familyOf(ip) === 6 ? 1n : 0n;
  for (const byte of ipBytes(ip)) place = place << 8n | BigInt(byte);
  return place;
}
