/** Elements of sets of peers and ports. */
import { familyOf, type Ip, ipBytes, ipFromBytes } from "../../../ffi/address.ts";
import { inetProto, inetService, ipv4Addr, ipv6Addr, namedSet, setOf } from "../../../ffi/nft/datatypes.ts";
import type { Element } from "../../../ffi/nft/objects.ts";
import { concatenation, portField } from "../../../ffi/nft/statements.ts";
import { NFT_SET_ELEM_INTERVAL_END, NFT_SET_INTERVAL } from "../../../ffi/nft/uapi.ts";
import type { PeerSet } from "./desired.ts";
import { peerSetName, shortComment } from "./object_names.ts";

type Family = 4 | 6;
export type PeerElement = Pick<Element, "key" | "flags">;

export function peerSetDefinition(key: string, { kind }: PeerSet, family: Family) {
  const address = family === 4 ? ipv4Addr : ipv6Addr;
  const keys = {
    addresses: [address],
    blocks: [address],
    ranges: [inetService],
    ports: [address, inetProto, inetService],
  };
  const definition = setOf(keys[kind]);
  const flags = kind === "blocks" || kind === "ranges" ? NFT_SET_INTERVAL : 0;
  return namedSet(peerSetName(key, family), { ...definition, flags }, shortComment(key));
}

export function peerElements(set: PeerSet, family: Family): PeerElement[] {
  const isOfFamily = (ip: Ip) => familyOf(ip) === family;
  switch (set.kind) {
    case "addresses":
      return Array.from(set.ips).filter(isOfFamily).map((ip) => ({ key: ipBytes(ip) }));
    case "ports":
      return Array.from(set.elements).filter(({ ip }) => isOfFamily(ip)).map(({ ip, protocol, port }) => ({
        key: concatenation(ipBytes(ip), Uint8Array.of(protocol), portField(port)),
      }));
    case "blocks":
      return Array.from(set.intervals).filter(([first]) => isOfFamily(first))
        .flatMap(([first, last]) => intervalOf(ipBytes(first), ipBytes(last)));
    case "ranges":
      return Array.from(set.ranges).flatMap(([first, last]) => intervalOf(portField(first), portField(last)));
  }
}

/** The kernel has an interval as two elements: its first address or port, and the one behind it. */
function intervalOf(first: Uint8Array, last: Uint8Array): PeerElement[] {
  const behind = last.slice();
  // Addresses of another notation have a next one too.
  for (let i = behind.length - 1; i >= 0 && ++behind[i]! === 0x100; i--);
  if (behind.every((byte) => byte === 0)) return [{ key: first }];
  return [{ key: first }, { key: behind, flags: NFT_SET_ELEM_INTERVAL_END }];
}

/** As intervals follow each other: where one ends, the next one may begin. */
export function compareInIntervals(a: PeerElement, b: PeerElement): number {
  return Buffer.compare(a.key, b.key) || (b.flags ?? 0) - (a.flags ?? 0);
}

/** Keys of sets of addresses, blocks and ports begin with it. */
export const elementAddress = (key: Uint8Array, family: Family): Ip =>
  ipFromBytes(key.subarray(0, family === 4 ? 4 : 16));

export const peerElementId = ({ key, flags = 0 }: PeerElement): string => `${key.toHex()} ${flags}`;
