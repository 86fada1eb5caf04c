import { type Cidr, ipBytes, ipOf, prefixLengthOf } from "../ffi/address.ts";
import type { ClusterNode } from "./node.ts";

/** A range of a node's pods. */
export interface PodRange {
  readonly node: ClusterNode;
  readonly cidr: Cidr;
  /** Its first address, as a number. */
  readonly first: bigint;
  /** How many addresses it has. */
  readonly size: bigint;
}

/** The ranges of all nodes, and which of them overlap. */
export class PodRanges {
  /** They are sorted by their first address. */
  readonly #sorted: PodRange[] = [];
  readonly #byNode = new Map<string, readonly PodRange[]>();
  /** How many ranges have how many addresses. Most clusters have two sizes, one for each family. */
  readonly #sizes = new Map<bigint, number>();

  add(node: ClusterNode): void {
    const ranges = node.podCidrs.map((cidr) => rangeOf(node, cidr));
    this.#byNode.set(node.uid, ranges);
    for (const range of ranges) {
      this.#sorted.splice(this.#indexOf(range.first), 0, range);
      this.#sizes.set(range.size, (this.#sizes.get(range.size) ?? 0) + 1);
    }
  }

  remove(node: ClusterNode): void {
    for (const range of this.#byNode.get(node.uid)!) {
      this.#sorted.splice(this.#sorted.indexOf(range, this.#indexOf(range.first)), 1);
      const count = this.#sizes.get(range.size)! - 1;
      if (count === 0) this.#sizes.delete(range.size);
      else this.#sizes.set(range.size, count);
    }
    this.#byNode.delete(node.uid);
  }

  of(node: ClusterNode): readonly PodRange[] {
    return this.#byNode.get(node.uid)!;
  }

  /** The ranges of other nodes that have addresses of this one. */
  overlapping({ node, first, size }: PodRange): PodRange[] {
    const found = this.#startingIn(first, first + size);
    // Of two ranges with common addresses, one contains the other.
    for (const larger of this.#sizes.keys()) {
      const start = first - first % larger;
      if (start < first) found.push(...this.#startingIn(start, start + 1n).filter((range) => range.size === larger));
    }
    return found.filter((range) => range.node !== node);
  }

  #startingIn(first: bigint, end: bigint): PodRange[] {
    const found: PodRange[] = [];
    for (let at = this.#indexOf(first); at < this.#sorted.length && this.#sorted[at]!.first < end; at++) {
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

function rangeOf(node: ClusterNode, cidr: Cidr): PodRange {
  const bytes = ipBytes(ipOf(cidr));
  const size = 1n << BigInt(bytes.length * 8 - prefixLengthOf(cidr));
  return { node, cidr, first: placeOf(bytes), size };
}

// One order for both families: IPv6 begins after IPv4.
const FIRST_OF_IPV6 = 1n << 128n;

function placeOf(bytes: Uint8Array): bigint {
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  if (bytes.length === 4) return BigInt(view.getUint32(0));
  return FIRST_OF_IPV6 | view.getBigUint64(0) << 64n | view.getBigUint64(8);
}
