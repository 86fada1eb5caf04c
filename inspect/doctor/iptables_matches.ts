/** Extensions of iptables. Their structs are in linux/netfilter/xt_*.h. @module */
import { familyOf, type Ip, ipBytes, ipFromBytes } from "../../ffi/address.ts";
import { NF_CT_STATE_ESTABLISHED, NF_CT_STATE_NEW, RTN_LOCAL } from "../../ffi/nft/uapi.ts";
import { RTN_UNICAST } from "../../ffi/route/uapi.ts";
import { IPPROTO_TCP, IPPROTO_UDP } from "../../ffi/sys/uapi.ts";
import type { WalkedPacket } from "./walked_packet.ts";

/** `undefined`: it cannot be told. */
export function judgeIptablesMatch(
  name: string | undefined,
  info: Uint8Array,
  packet: WalkedPacket,
): boolean | undefined {
  const view = new DataView(info.buffer, info.byteOffset, info.byteLength);
  switch (name) {
    case "comment":
      return true;
    case "mark":
      return info.length < 9 || packet.mark === undefined
        ? undefined
        : ((packet.mark & view.getUint32(4, true)) >>> 0 === view.getUint32(0, true)) !== (info[8] !== 0);
    case "conntrack":
      return judgeConntrackMatch(view, packet);
    case "addrtype":
      return judgeAddressType(view, packet.isToHost ? RTN_LOCAL : RTN_UNICAST);
    case "tcp":
    case "udp":
      return judgePorts(view, name, packet);
    case "multiport":
      return judgeMultiport(view, packet);
    case "ip":
    case "ip6":
      return judgeEbtablesMatch(info, name === "ip" ? 4 : 16, packet);
    default:
      return undefined;
  }
}

/** struct xt_conntrack_mtinfo3, behind eight addresses. */
function judgeConntrackMatch(view: DataView, { isDnat, isReply, isUntracked }: WalkedPacket): boolean | undefined {
  if (isUntracked) return undefined;
  const [MATCH_FLAGS, INVERT_FLAGS, STATE_MASK] = [146, 148, 150];
  const XT_CONNTRACK_STATE = 1;
  const XT_CONNTRACK_STATE_DNAT = 1 << 7;
  if (view.byteLength < STATE_MASK! + 2 || view.getUint16(MATCH_FLAGS!, true) !== XT_CONNTRACK_STATE) return undefined;
  const states = (isReply ? NF_CT_STATE_ESTABLISHED : NF_CT_STATE_NEW) | (isDnat ? XT_CONNTRACK_STATE_DNAT : 0);
  const matches = (view.getUint16(STATE_MASK!, true) & states) !== 0;
  return matches !== ((view.getUint16(INVERT_FLAGS!, true) & XT_CONNTRACK_STATE) !== 0);
}

/** struct xt_addrtype_info_v1 { u16 source, dest; u32 flags; }, with a bit for each RTN_…. */
function judgeAddressType(view: DataView, type: number): boolean | undefined {
  const XT_ADDRTYPE_INVERT_DEST = 2;
  if (view.byteLength < 8 || view.getUint16(0, true) !== 0) return undefined;
  const flags = view.getUint32(4, true);
  if ((flags & ~XT_ADDRTYPE_INVERT_DEST) !== 0) return undefined;
  return ((view.getUint16(2, true) & 1 << type) !== 0) !== (flags !== 0);
}

const ALL_PORTS = 0xffff;

/** struct xt_tcp { u16 spts[2], dpts[2]; u8 option, flg_mask, flg_cmp, invflags; }, and xt_udp without flags of TCP. */
function judgePorts(
  view: DataView,
  name: "tcp" | "udp",
  { protocol, destinationPort }: WalkedPacket,
): boolean | undefined {
  const INVERTS_DESTINATION = 0x02;
  const [option, flagMask, inverts] = name === "tcp" ? [8, 9, 11] : [undefined, undefined, 8];
  if (view.byteLength <= inverts!) return undefined;
  if (protocol !== (name === "tcp" ? IPPROTO_TCP : IPPROTO_UDP)) return false;
  const hasOthers = view.getUint16(0, true) !== 0 || view.getUint16(2, true) !== ALL_PORTS ||
    [option, flagMask].some((at) => at !== undefined && view.getUint8(at) !== 0) ||
    (view.getUint8(inverts!) & ~INVERTS_DESTINATION) !== 0;
  if (hasOthers) return undefined;
  const isInside = destinationPort >= view.getUint16(4, true) && destinationPort <= view.getUint16(6, true);
  return isInside !== (view.getUint8(inverts!) !== 0);
}

/** struct xt_multiport_v1 { u8 flags, count; u16 ports[15]; u8 pflags[15], invert; } */
function judgeMultiport(view: DataView, { destinationPort }: WalkedPacket): boolean | undefined {
  const XT_MULTIPORT_DESTINATION = 1;
  const [PORTS, RANGE_FLAGS, INVERT] = [2, 32, 47] as const;
  if (view.byteLength <= INVERT || view.getUint8(0) !== XT_MULTIPORT_DESTINATION) return undefined;
  const portAt = (i: number) => view.getUint16(PORTS + 2 * i, true);
  const matches = Array.from({ length: view.getUint8(1) }, (_, i) => {
    // The port behind it ends a range.
    const end = view.getUint8(RANGE_FLAGS + i) === 0 ? portAt(i) : portAt(i + 1);
    return destinationPort >= portAt(i) && destinationPort <= end;
  });
  return matches.includes(true) !== (view.getUint8(INVERT) !== 0);
}

/**
 * The layout is ebtables' struct ebt_ip_info { addr saddr, daddr, smsk, dmsk; u8 tos, protocol, bitmask, invflags; u16
 * sport[2], dport[2]; } of linux/netfilter_bridge/ebt_ip.h, and ebt_ip6_info with longer addresses.
 */
function judgeEbtablesMatch(info: Uint8Array, length: number, packet: WalkedPacket): boolean | undefined {
  const [SOURCE, DESTINATION, PROTOCOL, DESTINATION_PORT] = [1, 2, 8, 32] as const;
  const words = 4 * length;
  if (info.length < words + 12 || ipBytes(packet.source).length !== length) return undefined;
  const [protocol, selected, inverted] = [info[words + 1]!, info[words + 2]!, info[words + 3]!];
  if ((selected & ~(SOURCE | DESTINATION | PROTOCOL | DESTINATION_PORT)) !== 0) return undefined;
  const field = (i: number) => info.subarray(i * length, (i + 1) * length);
  const isIn = (ip: Ip, i: number) => ipBytes(ip).every((byte, at) => (byte & field(i + 2)[at]!) === field(i)[at]);
  const ports = new DataView(info.buffer, info.byteOffset + words + 8);
  const judged: readonly (readonly [bit: number, matches: boolean])[] = [
    [SOURCE, isIn(packet.source, 0)],
    [DESTINATION, isIn(packet.destination, 1)],
    [PROTOCOL, packet.protocol === protocol],
    [
      DESTINATION_PORT,
      packet.destinationPort >= ports.getUint16(0, true) && packet.destinationPort <= ports.getUint16(2, true),
    ],
  ];
  return judged.every(([bit, matches]) => (selected & bit) === 0 || matches !== ((inverted & bit) !== 0));
}

/**
 * The address that DNAT of iptables gives: struct nf_nat_range2 { u32 flags; nf_inet_addr min_addr, max_addr; … }.
 *
 * @returns `undefined` if it keeps the address, or has an older struct
 */
export function iptablesDnatTarget(info: Uint8Array, source: Ip): Ip | undefined {
  const [NF_NAT_RANGE_MAP_IPS, MIN_ADDRESS, SIZE] = [1, 4, 40] as const;
  if (info.length < SIZE || (info[0]! & NF_NAT_RANGE_MAP_IPS) === 0) return undefined;
  return ipFromBytes(info.subarray(MIN_ADDRESS, MIN_ADDRESS + (familyOf(source) === 4 ? 4 : 16)));
}
