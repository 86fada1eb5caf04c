/** Blocks of addresses without their exceptions. @module */
import { type Cidr, familyOf, type Ip, ipBytes, ipFromBytes, ipOf, prefixLengthOf } from "../ffi/address.ts";
import type { BlockPeer } from "./api/network_policy.ts";

/** Both ends are in it. */
interface Interval {
  readonly first: bigint;
  readonly last: bigint;
}

export interface Blocks {
  /** The same for the same addresses. */
  readonly text: string;
  readonly intervals: readonly (readonly [first: Ip, last: Ip])[];
  contains(ip: Ip): boolean;
}

export function blocksOf(peers: readonly BlockPeer[]): Blocks {
  const merged = merge(peers.flatMap(({ cidr, except }) => without(intervalOf(cidr), cidr, except)));
  const intervals = merged.map(({ first, last }) => [ipAt(first), ipAt(last)] as const);
  return {
    text: intervals.map(([first, last]) => first === last ? first : `${first}-${last}`).join(),
    intervals,
    contains: (ip) => hasPlace(merged, placeOf(ip)),
  };
}

function without(block: Interval, cidr: Cidr, except: readonly Cidr[]): Interval[] {
  const left: Interval[] = [];
  let first = block.first;
  const family = familyOf(cidr);
  const holes = except.filter((each) => familyOf(each) === family).map(intervalOf);
  if (family === 6) holes.push(MAPPED);
  for (const hole of merge(holes)) {
    if (hole.last < first || hole.first > block.last) continue;
    if (hole.first > first) left.push({ first, last: hole.first - 1n });
    first = hole.last + 1n;
  }
  if (first <= block.last) left.push({ first, last: block.last });
  return left;
}

/** Sorted, and none touches another one. */
function merge(intervals: readonly Interval[]): Interval[] {
  const merged: Interval[] = [];
  for (const { first, last } of intervals.toSorted((a, b) => a.first < b.first ? -1 : 1)) {
    const before = merged.at(-1);
    if (!before || first > before.last + 1n) merged.push({ first, last });
    else if (last > before.last) merged[merged.length - 1] = { first: before.first, last };
  }
  return merged;
}

function hasPlace(intervals: readonly Interval[], place: bigint): boolean {
  let low = 0;
  let high = intervals.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (intervals[middle]!.last < place) low = middle + 1;
    else high = middle;
  }
  return low < intervals.length && intervals[low]!.first <= place;
}

// One order for both families: IPv6 begins after IPv4.
const FIRST_OF_IPV6 = 1n << 128n;

/** Of IPv6, these are another notation of IPv4: no packet has them. */
const MAPPED: Interval = { first: FIRST_OF_IPV6 | 0xffff_0000_0000n, last: FIRST_OF_IPV6 | 0xffff_ffff_ffffn };

function intervalOf(cidr: Cidr): Interval {
  const first = placeOf(ipOf(cidr));
  const hostBits = (familyOf(cidr) === 4 ? 32 : 128) - prefixLengthOf(cidr);
  return { first, last: first + (1n << BigInt(hostBits)) - 1n };
}

function placeOf(ip: Ip): bigint {
  const bytes = ipBytes(ip);
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  if (bytes.length === 4) return BigInt(view.getUint32(0));
  return FIRST_OF_IPV6 | view.getBigUint64(0) << 64n | view.getBigUint64(8);
}

function ipAt(place: bigint): Ip {
  const bytes = new Uint8Array(place < FIRST_OF_IPV6 ? 4 : 16);
  const view = new DataView(bytes.buffer);
  if (bytes.length === 4) view.setUint32(0, Number(place));
  else {
    view.setBigUint64(0, place >> 64n & 0xffff_ffff_ffff_ffffn);
    view.setBigUint64(8, place & 0xffff_ffff_ffff_ffffn);
  }
  return ipFromBytes(bytes);
}
