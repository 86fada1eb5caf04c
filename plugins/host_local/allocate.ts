/**
 * Choosing addresses: which ones a container gets, given what is taken. Nothing here touches a file.
 *
 * @module
 */
import { type Ip, nextIp } from "../../ffi/address.ts";
import { CniError, Code } from "../spec/error.ts";
import { describeHolder, type Holder } from "./inventory.ts";
import { capacityOf, findRange, formatRanges, type Range, type RangeSet } from "./ranges.ts";

/** What is known about the addresses of a network. */
export interface Usage {
  readonly holders: ReadonlyMap<Ip, Holder | undefined>;
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

function checkRequested(set: RangeSet, address: Ip, { holders }: Usage): Choice {
  const range = findRange(set, address)!;
  if (address === range.gateway) {
    throw new CniError(
      Code.InvalidConfig,
      `Cannot reserve requested address ${address}: it is the gateway of ${range.subnet}`,
    );
  }
  if (!holders.has(address)) return { address, range };
  const holder = holders.get(address);
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

function allocateNext(set: RangeSet, last: Ip | undefined, { holders }: Usage): Choice {
  for (const choice of candidates(set, last)) if (!holders.has(choice.address)) return choice;
  throw new CniError(
    Code.TryAgainLater,
    `Cannot allocate an address: all ${capacityOf(set)} addresses of range set ${formatRanges(set.ranges)} are in use`,
    { details: "remove containers, release what dead ones still hold with GC, or configure a larger range" },
  );
}

/**
 * The addresses of a set in the order in which they are given out: from the one after `last`, round and round, with `last` at the end.
 *
 * So an address that became free is left alone for as long as possible: somebody may still have it in a cache.
 */
export function* candidates({ ranges }: RangeSet, last?: Ip): Generator<Choice> {
  const known = last === undefined ? undefined : findRange({ path: "", ranges }, last);
  let at = known ? ranges.indexOf(known) : 0;
  let address = known ? last! : undefined;
  const advance = (): Ip => {
    if (address === undefined) return ranges[0]!.start;
    const next = address === ranges[at]!.end ? undefined : nextIp(address);
    if (next !== undefined) return next;
    at = (at + 1) % ranges.length;
    return ranges[at]!.start;
  };
  const first = address = advance();
  do {
    const range = ranges[at]!;
    if (address !== range.gateway) yield { address, range };
    address = advance();
  } while (address !== first);
}
