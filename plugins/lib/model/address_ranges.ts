/** Ranges of addresses. No function iterates over a range: IPv6 ranges may hold 2^64 addresses. */
import {
  broadcastOf,
  type Cidr,
  compareIps,
  containsIp,
  familyOf,
  type Ip,
  ipBytes,
  ipOf,
  networkOf,
  nextIp,
  prefixLengthOf,
  previousIp,
} from "../../../ffi/address.ts";
import { ConfigError } from "../../../spec/error.ts";
import { array, cidr, type Infer, ipAddress, knownKeys, lazy, optional, type Schema } from "../../../spec/schema.ts";

/** `end` is included. `gateway` is never allocated. */
export interface AddressRange {
  readonly subnet: Cidr;
  readonly start: Ip;
  readonly end: Ip;
  /** May lie outside the range. */
  readonly gateway: Ip;
}

/** Ranges of one family without overlaps. Together they give a container one address. */
export interface RangeSet {
  /** Where the configuration has it: `ipam.ranges[0]`. */
  readonly path: string;
  readonly ranges: readonly AddressRange[];
}

export const rangeKeys = {
  rangeStart: optional(ipAddress),
  rangeEnd: optional(ipAddress),
  gateway: optional(ipAddress),
};
const rangeConfig = lazy(() => knownKeys({ subnet: cidr, ...rangeKeys }));
export const addressRange: Schema<AddressRange> = {
  inner: rangeConfig,
  parse: (node, path = "") => resolveRange(rangeConfig.parse(node, path), path),
};
const ranges = array(addressRange);

export const rangeSet: Schema<RangeSet> = {
  inner: ranges,
  parse: (node, path = "") => resolveRangeSet(ranges.parse(node, path), path),
};

/** A list of ranges or a single one: containerd's library sends `ipRanges` with one level less. */
export const rangeOrSet: Schema<RangeSet> = {
  inner: addressRange,
  parse: (node, path = "") =>
    Array.isArray(node) ? rangeSet.parse(node, path) : { path, ranges: [addressRange.parse(node, path)] },
};

/** Fills in defaults. @throws {ConfigError} naming the field below `path` */
export function resolveRange(
  { subnet, rangeStart, rangeEnd, gateway }: Infer<typeof rangeConfig>,
  path: string,
): AddressRange {
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
  // IPv6 has no broadcast address.
  const end = rangeEnd ?? (bits === 32 ? previousIp(last)! : last);
  if (!containsIp(network, start)) refuse("rangeStart", `an address in ${network}`, start);
  if (!containsIp(network, end)) refuse("rangeEnd", `an address in ${network}`, end);
  if (compareIps(start, end) > 0) refuse("rangeStart", `an address in ${network} that is not after ${end}`, start);
  return { subnet, start, end, gateway: gateway ?? first };
}

export function resolveRangeSet(ranges: readonly AddressRange[], path: string): RangeSet {
  const [first] = ranges;
  if (!first) throw new ConfigError(path, "a list of at least one range", "[]");
  if (ranges.some(({ subnet }) => familyOf(subnet) !== familyOf(first.subnet))) {
    throw new ConfigError(path, "a list of ranges of one address family", ranges.map(({ subnet }) => subnet).join());
  }
  const [other, later] = findOverlap(ranges) ?? [];
  if (other && later) {
    const pathOf = (member: AddressRange) => `${path}[${ranges.indexOf(member)}]`;
    throw overlapError(pathOf(later), [later], pathOf(other), [other]);
  }
  return { path, ranges };
}

export function refuseRangeOverlaps(sets: readonly RangeSet[]): void {
  const setOf = new Map(sets.flatMap((set) => set.ranges.map((member) => [member, set] as const)));
  const [other, set] = findOverlap([...setOf.keys()])?.map((member) => setOf.get(member)!) ?? [];
  if (other && set) throw overlapError(set.path, set.ranges, other.path, other.ranges);
}

/** Two overlapping ranges, in the order of the list. It sorts by start, so only neighbours need comparing: there may be thousands. */
function findOverlap(ranges: readonly AddressRange[]): AddressRange[] | undefined {
  const sorted = ranges.toSorted((a, b) => compareIps(a.start, b.start));
  const index = sorted.findIndex((current, i) => i > 0 && rangesOverlap(sorted[i - 1]!, current));
  if (index < 0) return undefined;
  return sorted.slice(index - 1, index + 1).sort((a, b) => ranges.indexOf(a) - ranges.indexOf(b));
}

function overlapError(
  path: string,
  ranges: readonly AddressRange[],
  other: string,
  others: readonly AddressRange[],
): ConfigError {
  return new ConfigError(path, `apart from ${other}, which is ${formatRanges(others)}`, formatRanges(ranges));
}

export function rangesOverlap(a: AddressRange, b: AddressRange): boolean {
  return familyOf(a.subnet) === familyOf(b.subnet) && compareIps(a.start, b.end) <= 0 &&
    compareIps(b.start, a.end) <= 0;
}

export function rangeIncludes({ start, end }: AddressRange, ip: Ip): boolean {
  return isBetween(start, ip, end);
}

export function isBetween(first: Ip, ip: Ip, last: Ip): boolean {
  return familyOf(first) === familyOf(ip) && compareIps(first, ip) <= 0 && compareIps(ip, last) <= 0;
}

export function findRangeOf(set: RangeSet, ip: Ip): AddressRange | undefined {
  return set.ranges.find((candidate) => rangeIncludes(candidate, ip));
}

/** Gateways are not counted: no container gets one. */
export function capacityOf(set: RangeSet): bigint {
  let count = 0n;
  for (const member of set.ranges) {
    count += toNumber(member.end) - toNumber(member.start) + (rangeIncludes(member, member.gateway) ? 0n : 1n);
  }
  return count;
}

export function formatRanges(ranges: readonly AddressRange[]): string {
  return ranges.map(({ start, end }) => `${start}-${end}`).join(",");
}

function toNumber(ip: Ip): bigint {
  let value = 0n;
  for (const byte of ipBytes(ip)) value = value << 8n | BigInt(byte);
  return value;
}
