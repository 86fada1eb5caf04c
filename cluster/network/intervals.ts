import {
  broadcastOf,
  type Cidr,
  containsIp,
  familyOf,
  ipBytes,
  ipOf,
  networkOf,
  nextIp,
  prefixLengthOf,
} from "../../ffi/address.ts";
import { NFT_SET_ELEM_INTERVAL_END } from "../../ffi/nft/uapi.ts";
import type { SetElement } from "./set_element.ts";

/** The kernel has an interval as two elements: its first address, and the one behind it. */
export function intervalElements(set: string, cidr: Cidr): SetElement[] {
  const first = { set, key: ipBytes(ipOf(networkOf(cidr))) };
  const behind = nextIp(broadcastOf(cidr));
  if (behind === undefined) return [first];
  return [first, { set, key: ipBytes(behind), flags: NFT_SET_ELEM_INTERVAL_END }];
}

/** Without those that lie in another one: intervals of a set must not overlap. */
export function widestRanges(cidrs: readonly Cidr[]): Cidr[] {
  const widest: Cidr[] = [];
  for (const cidr of cidrs.map(networkOf).sort((a, b) => prefixLengthOf(a) - prefixLengthOf(b))) {
    const isInside = widest.some((each) => familyOf(each) === familyOf(cidr) && containsIp(each, ipOf(cidr)));
    if (!isInside) widest.push(cidr);
  }
  return widest;
}
