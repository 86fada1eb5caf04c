import { type Ip, nextIp } from "../../ffi/address.ts";
import { CniError, Code } from "../../spec/error.ts";
import { type AddressHolder, describeHolder } from "../lib/model/reservations.ts";
import {
  type AddressRange,
  capacityOf,
  findRangeOf,
  formatRanges,
  isBetween,
  rangeIncludes,
  type RangeSet,
} from "../lib/model/address_ranges.ts";

export interface AddressUsage {
  isAllocated(address: Ip): boolean;
  /** `undefined` if something else has the address as its name. */
  findHolder(address: Ip): AddressHolder | undefined;
  findFree(from: Ip): Ip | undefined;
  findLastReserved(set: number): Ip | undefined;
}

export interface Allocation {
  readonly address: Ip;
  readonly range: AddressRange;
}

/**
 * Chooses one address per set, in order: a requested one, else the next free one.
 *
 * @throws {CniError} code 7 for a request that can never be met, code 11 for one that cannot be met now
 */
export function allocate(sets: readonly RangeSet[], requested: readonly Ip[], usage: AddressUsage): Allocation[] {
  const remaining = [...requested];
  const allocations = sets.map((set, i) => {
    const index = remaining.findIndex((ip) => findRangeOf(set, ip));
    return index < 0
      ? allocateNext(set, usage.findLastReserved(i), usage)
      : checkRequested(set, remaining.splice(index, 1)[0]!, usage);
  });
  if (remaining.length > 0) throw unmetRequestError(remaining, requested, sets);
  return allocations;
}

function checkRequested(set: RangeSet, address: Ip, { isAllocated, findHolder }: AddressUsage): Allocation {
  const range = findRangeOf(set, address)!;
  if (address === range.gateway) {
    throw new CniError(
      Code.InvalidConfig,
      `Cannot reserve requested address ${address}: it is the gateway of ${range.subnet}`,
    );
  }
  if (!isAllocated(address)) return { address, range };
  const holder = findHolder(address);
  throw new CniError(
    Code.TryAgainLater,
    `Cannot reserve requested address ${address}: ${holder ? describeHolder(holder) : "something else"} holds it`,
    { details: `range set ${formatRanges(set.ranges)}` },
  );
}

function unmetRequestError(remaining: readonly Ip[], requested: readonly Ip[], sets: readonly RangeSet[]): CniError {
  const ranges = sets.map((set) => formatRanges(set.ranges)).join("; ");
  return new CniError(
    Code.InvalidConfig,
    `Cannot reserve requested address ${remaining.join(", ")}: every range set gives one address, and ${
      remaining.length < requested.length ? "those are taken by the other requests" : "none of them includes it"
    }`,
    { details: `range sets: ${ranges}` },
  );
}

function allocateNext(set: RangeSet, last: Ip | undefined, usage: AddressUsage): Allocation {
  for (const span of listSpans(set, last)) {
    const address = findFreeInSpan(span, usage);
    if (address !== undefined) return { address, range: span.range };
  }
  throw exhaustedError(Code.TryAgainLater, set);
}

export function exhaustedError(code: number, set: RangeSet): CniError {
  return new CniError(
    code,
    `Cannot allocate an address: all addresses of range set ${formatRanges(set.ranges)} are in use (${
      capacityOf(set)
    })`,
    { details: "remove containers, release addresses of dead containers with GC, or configure a larger range" },
  );
}

/** `from` and `to` belong to it. */
interface AddressSpan {
  readonly range: AddressRange;
  readonly from: Ip;
  readonly to: Ip;
}

/**
 * The addresses of a set in the order of allocation. It starts after `last`: other hosts may still cache a released
 * address.
 */
function listSpans({ ranges }: RangeSet, last?: Ip): AddressSpan[] {
  const index = last === undefined ? -1 : ranges.findIndex((candidate) => rangeIncludes(candidate, last));
  const fullSpan = (range: AddressRange): AddressSpan => ({ range, from: range.start, to: range.end });
  if (index < 0) return ranges.map(fullSpan);
  const range = ranges[index]!;
  const next = last === range.end ? undefined : nextIp(last!);
  return [
    ...(next === undefined ? [] : [{ range, from: next, to: range.end }]),
    ...ranges.slice(index + 1).map(fullSpan),
    ...ranges.slice(0, index).map(fullSpan),
    { range, from: range.start, to: last! },
  ];
}

function findFreeInSpan({ range, from, to }: AddressSpan, { findFree }: AddressUsage): Ip | undefined {
  let free = findFree(from);
  if (free === range.gateway) {
    const next = nextIp(free);
    free = next && findFree(next);
  }
  return free !== undefined && isBetween(from, free, to) ? free : undefined;
}
