/**
 * Choosing addresses: which ones a container gets, given what is taken. Nothing here touches a file.
 *
 * @module
 */
import { type Ip, nextIp } from "../../ffi/address.ts";
import { CniError, Code } from "../../spec/error.ts";
import { describeHolder, type Holder } from "./inventory.ts";
import { capacityOf, findRange, formatRanges, includes, isBetween, type Range, type RangeSet } from "./ranges.ts";

/** What is known about the addresses of a network. */
export interface Usage {
  /** Whether it cannot be given out. */
  isTaken(address: Ip): boolean;
  /** Who holds an address that is taken; `undefined` where something else has its name. */
  findHolder(address: Ip): Holder | undefined;
  /** The first address from `from` on that is not taken. */
  findFree(from: Ip): Ip | undefined;
  findLastReserved(set: number): Ip | undefined;
}

/** An address and the range it is from. */
export interface Choice {
  readonly address: Ip;
  readonly range: Range;
}

/**
 * Chooses one address out of each set, in their order: a requested one if it lies in the set, else the next one that is free.
 *
 * @throws {CniError} code 7 for a request that cannot be met, code 11 for one that cannot be met now
 */
export function allocate(sets: readonly RangeSet[], requested: readonly Ip[], usage: Usage): Choice[] {
  const left = [...requested];
  const choices = sets.map((set, i) => {
    const at = left.findIndex((ip) => findRange(set, ip));
    return at < 0
      ? allocateNext(set, usage.findLastReserved(i), usage)
      : checkRequested(set, left.splice(at, 1)[0]!, usage);
  });
  if (left.length > 0) throw leftError(left, requested, sets);
  return choices;
}

function checkRequested(set: RangeSet, address: Ip, { isTaken, findHolder }: Usage): Choice {
  const range = findRange(set, address)!;
  if (address === range.gateway) {
    throw new CniError(
      Code.InvalidConfig,
      `Cannot reserve requested address ${address}: it is the gateway of ${range.subnet}`,
    );
  }
  if (!isTaken(address)) return { address, range };
  const holder = findHolder(address);
  throw new CniError(
    Code.TryAgainLater,
    `Cannot reserve requested address ${address}: ${holder ? describeHolder(holder) : "something else"} holds it`,
    { details: `range set ${formatRanges(set.ranges)}` },
  );
}

function leftError(left: readonly Ip[], requested: readonly Ip[], sets: readonly RangeSet[]): CniError {
  const ranges = sets.map((set) => formatRanges(set.ranges)).join("; ");
  return new CniError(
    Code.InvalidConfig,
    `Cannot reserve requested address ${left.join(", ")}: every range set gives one address, and ${
      left.length < requested.length ? "those are taken by the other requests" : "none of them includes it"
    }`,
    { details: `range sets: ${ranges}` },
  );
}

function allocateNext(set: RangeSet, last: Ip | undefined, usage: Usage): Choice {
  for (const stretch of stretches(set, last)) {
    const address = findFreeIn(stretch, usage);
    if (address !== undefined) return { address, range: stretch.range };
  }
  throw new CniError(
    Code.TryAgainLater,
    `Cannot allocate an address: all ${capacityOf(set)} addresses of range set ${formatRanges(set.ranges)} are in use`,
    { details: "remove containers, release what dead ones still hold with GC, or configure a larger range" },
  );
}

/** The addresses of a range from `from` to `to`, both included. */
interface Stretch {
  readonly range: Range;
  readonly from: Ip;
  readonly to: Ip;
}

/**
 * The addresses of a set in the order in which they are given out: from the one after `last`, round and round, with `last` at the end.
 *
 * So an address that became free is left alone for as long as possible: somebody may still have it in a cache.
 */
function stretches({ ranges }: RangeSet, last?: Ip): Stretch[] {
  const at = last === undefined ? -1 : ranges.findIndex((each) => includes(each, last));
  const whole = (range: Range): Stretch => ({ range, from: range.start, to: range.end });
  if (at < 0) return ranges.map(whole);
  const range = ranges[at]!;
  const next = last === range.end ? undefined : nextIp(last!);
  return [
    ...(next === undefined ? [] : [{ range, from: next, to: range.end }]),
    ...ranges.slice(at + 1).map(whole),
    ...ranges.slice(0, at).map(whole),
    { range, from: range.start, to: last! },
  ];
}

function findFreeIn({ range, from, to }: Stretch, { findFree }: Usage): Ip | undefined {
  let free = findFree(from);
  if (free === range.gateway) {
    const next = nextIp(free);
    free = next && findFree(next);
  }
  return free !== undefined && isBetween(from, free, to) ? free : undefined;
}
