/**
 * Ranges of addresses, as a configuration describes them and as addresses are taken from them.
 *
 * No function walks over a range, except for as long as its caller takes addresses from it: an IPv6 range may hold 2^64.
 *
 * @module
 */
import {
  broadcastOf,
  type Cidr,
  compareIp,
  contains,
  familyOf,
  type Ip,
  ipBytes,
  ipOf,
  networkOf,
  nextIp,
  prefixLengthOf,
  previousIp,
} from "../../ffi/address.ts";
import { ConfigError } from "../../spec/error.ts";
import { array, cidr, ipAddress, lazy, optional, type Schema, struct } from "../../spec/schema.ts";

/** The addresses from `start` to `end`, both included, of which `gateway` is never given out. */
export interface Range {
  readonly subnet: Cidr;
  readonly start: Ip;
  readonly end: Ip;
  /** May lie outside. */
  readonly gateway: Ip;
}

/** Ranges of one family that do not overlap; a container gets one address out of all of them. */
export interface RangeSet {
  /** Where it stands in the configuration: `ipam.ranges[0]`. */
  readonly path: string;
  readonly ranges: readonly Range[];
}

/** A range as it is written. */
export interface RangeFields {
  readonly subnet: Cidr;
  readonly rangeStart?: Ip;
  readonly rangeEnd?: Ip;
  readonly gateway?: Ip;
}

const fields = lazy(() =>
  struct({
    subnet: cidr,
    rangeStart: optional(ipAddress),
    rangeEnd: optional(ipAddress),
    gateway: optional(ipAddress),
  })
);
const range: Schema<Range> = { inner: fields, parse: (node, path = "") => toRange(fields.parse(node, path), path) };
const ranges = array(range);

/** A list of ranges. */
export const rangeSet: Schema<RangeSet> = {
  inner: ranges,
  parse: (node, path = "") => toRangeSet(ranges.parse(node, path), path),
};
/** A list of ranges, or a single one in its place: containerd's library sends `ipRanges` with one level less. */
export const rangeOrSet: Schema<RangeSet> = {
  inner: range,
  parse: (node, path = "") =>
    Array.isArray(node) ? rangeSet.parse(node, path) : { path, ranges: [range.parse(node, path)] },
};

/** The range that `fields` describe, with what they leave out. @throws {ConfigError} naming the field below `path` */
export function toRange({ subnet, rangeStart, rangeEnd, gateway }: RangeFields, path: string): Range {
  const bits = familyOf(subnet) === 4 ? 32 : 128;
  const refuse = (field: string, expected: string, got: string): never => {
    throw new ConfigError(`${path}.${field}`, expected, JSON.stringify(got));
  };
  if (prefixLengthOf(subnet) > bits - 2) {
    refuse("subnet", `a network with room for containers, of prefix length ${bits - 2} or less`, subnet);
  }
  const network = networkOf(subnet);
  if (network !== subnet) refuse("subnet", `the address of a network, without host bits, such as "${network}"`, subnet);
  const first = nextIp(ipOf(network))!;
  const last = broadcastOf(network);
  const start = rangeStart ?? first;
  // An IPv6 network has no broadcast address.
  const end = rangeEnd ?? (bits === 32 ? previousIp(last)! : last);
  if (!contains(network, start)) refuse("rangeStart", `an address in ${network}`, start);
  if (!contains(network, end)) refuse("rangeEnd", `an address in ${network}`, end);
  if (compareIp(start, end) > 0) refuse("rangeStart", `an address in ${network} that is not after ${end}`, start);
  return { subnet, start, end, gateway: gateway ?? first };
}

/** Makes sure that the ranges can stand together. @throws {ConfigError} */
export function toRangeSet(ranges: readonly Range[], path: string): RangeSet {
  const [first] = ranges;
  if (!first) throw new ConfigError(path, "a list of at least one range", "[]");
  if (ranges.some(({ subnet }) => familyOf(subnet) !== familyOf(first.subnet))) {
    throw new ConfigError(path, "a list of ranges of one address family", ranges.map(({ subnet }) => subnet).join());
  }
  const [other, later] = findOverlap(ranges) ?? [];
  if (other && later) {
    const placeOf = (each: Range) => `${path}[${ranges.indexOf(each)}]`;
    throw overlapError(placeOf(later), [later], placeOf(other), [other]);
  }
  return { path, ranges };
}

/** Makes sure that no address is in two sets. @throws {ConfigError} */
export function refuseOverlaps(sets: readonly RangeSet[]): void {
  const setOf = new Map(sets.flatMap((set) => set.ranges.map((each) => [each, set] as const)));
  const [other, set] = findOverlap([...setOf.keys()])?.map((each) => setOf.get(each)!) ?? [];
  if (other && set) throw overlapError(set.path, set.ranges, other.path, other.ranges);
}

/**
 * Two ranges that share an address, in the order in which they are listed: those with the lowest addresses, if there are several.
 *
 * Ordered by their starts, each has to be compared with the one before it alone: there may be thousands.
 */
function findOverlap(ranges: readonly Range[]): Range[] | undefined {
  const sorted = ranges.toSorted((a, b) => compareIp(a.start, b.start));
  const at = sorted.findIndex((each, i) => i > 0 && overlap(sorted[i - 1]!, each));
  if (at < 0) return undefined;
  return sorted.slice(at - 1, at + 1).sort((a, b) => ranges.indexOf(a) - ranges.indexOf(b));
}

function overlapError(path: string, ranges: readonly Range[], other: string, others: readonly Range[]): ConfigError {
  return new ConfigError(path, `apart from ${other}, which is ${formatRanges(others)}`, formatRanges(ranges));
}

/** Tells whether two ranges share an address; two ranges of one subnet need not. */
export function overlap(a: Range, b: Range): boolean {
  return familyOf(a.subnet) === familyOf(b.subnet) && compareIp(a.start, b.end) <= 0 && compareIp(b.start, a.end) <= 0;
}

/** Tells whether an address is in a range, be it the gateway's. */
export function includes({ start, end }: Range, ip: Ip): boolean {
  return isBetween(start, ip, end);
}

/** Tells whether an address is neither before `first` nor after `last`, which are of one family. */
export function isBetween(first: Ip, ip: Ip, last: Ip): boolean {
  return familyOf(first) === familyOf(ip) && compareIp(first, ip) <= 0 && compareIp(ip, last) <= 0;
}

/** The range of the set that an address is in. */
export function findRange(set: RangeSet, ip: Ip): Range | undefined {
  return set.ranges.find((each) => includes(each, ip));
}

/** How many containers the set has an address for. */
export function capacityOf(set: RangeSet): bigint {
  let count = 0n;
  for (const each of set.ranges) {
    count += toNumber(each.end) - toNumber(each.start) + (includes(each, each.gateway) ? 0n : 1n);
  }
  return count;
}

/** `10.0.0.2-10.0.0.9,10.0.1.2-10.0.1.9` */
export function formatRanges(ranges: readonly Range[]): string {
  return ranges.map(({ start, end }) => `${start}-${end}`).join(",");
}

function toNumber(ip: Ip): bigint {
  let value = 0n;
  for (const byte of ipBytes(ip)) value = value << 8n | BigInt(byte);
  return value;
}
