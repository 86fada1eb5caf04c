/** Where an IP packet comes from and goes to. @see RFC 791, RFC 8200 @module */
import { type Ip, ipFromBytes } from "../address.ts";
import { ETH_P_IP, ETH_P_IPV6, IPPROTO_SCTP, IPPROTO_TCP, IPPROTO_UDP } from "../sys/uapi.ts";

export interface PacketEnds {
  readonly source: Ip;
  readonly destination: Ip;
  readonly protocol: number;
  /** Of the destination; only of TCP, UDP and SCTP, and not in later fragments. */
  readonly port?: number;
}

const HEADER4_BYTES = 20;
const HEADER6_BYTES = 40;
const OFFSET_MASK = 0x1fff;
const EXTENSION_OFFSET_MASK = 0xfff8;
// RFC 8200, section 4: hop-by-hop options, routing, destination options.
const EXTENSIONS = [0, 43, 60];
const FRAGMENT = 44;
const FRAGMENT_BYTES = 8;

/**
 * @param packet its beginning, from the network header on
 * @returns `undefined` for what is no IP packet
 */
export function readPacketEnds(etherType: number, packet: Uint8Array): PacketEnds | undefined {
  const view = new DataView(packet.buffer, packet.byteOffset, packet.length);
  if (etherType === ETH_P_IP && packet.length >= HEADER4_BYTES) {
    const isFirst = (view.getUint16(6) & OFFSET_MASK) === 0;
    const transport = (view.getUint8(0) & 0xf) * 4;
    return endsOf(packet.subarray(12, 16), packet.subarray(16, 20), view, view.getUint8(9), isFirst, transport);
  }
  if (etherType !== ETH_P_IPV6 || packet.length < HEADER6_BYTES) return undefined;
  let protocol = view.getUint8(6);
  let at = HEADER6_BYTES;
  let isFirst = true;
  while ((EXTENSIONS.includes(protocol) || protocol === FRAGMENT) && at + FRAGMENT_BYTES <= packet.length) {
    const isFragment = protocol === FRAGMENT;
    if (isFragment) isFirst &&= (view.getUint16(at + 2) & EXTENSION_OFFSET_MASK) === 0;
    protocol = view.getUint8(at);
    at += isFragment ? FRAGMENT_BYTES : (view.getUint8(at + 1) + 1) * 8;
  }
  return endsOf(packet.subarray(8, 24), packet.subarray(24, 40), view, protocol, isFirst, at);
}

function endsOf(
  source: Uint8Array,
  destination: Uint8Array,
  view: DataView,
  protocol: number,
  isFirst: boolean,
  transport: number,
): PacketEnds {
  const hasPort = isFirst && [IPPROTO_TCP, IPPROTO_UDP, IPPROTO_SCTP].includes(protocol) &&
    transport + 4 <= view.byteLength;
  return {
    source: ipFromBytes(source),
    destination: ipFromBytes(destination),
    protocol,
    ...hasPort && { port: view.getUint16(transport + 2) },
  };
}
