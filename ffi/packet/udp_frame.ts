/** UDP in IPv4 in Ethernet, for hosts without an address. @see RFC 768, RFC 791, linux/if_ether.h @module */
import { type Ip, ipBytes, ipFromBytes, type Mac, macBytes, macFromBytes } from "../address.ts";
import { ETH_P_IP, IPPROTO_UDP } from "../sys/uapi.ts";

export interface UdpEndpoint {
  readonly mac: Mac;
  readonly ip: Ip;
  readonly port: number;
}

export interface UdpFrame {
  readonly source: UdpEndpoint;
  readonly destination: UdpEndpoint;
  readonly payload: Uint8Array;
}

const ETHERNET_BYTES = 14;
const HEADER_BYTES = 20;
const UDP_BYTES = 8;
const NETWORK_AT = ETHERNET_BYTES;
const UDP_AT = NETWORK_AT + HEADER_BYTES;
const PAYLOAD_AT = UDP_AT + UDP_BYTES;
const TIME_TO_LIVE = 64;
const FRAGMENT_MASK = 0x3fff;
export const BROADCAST_MAC = "ff:ff:ff:ff:ff:ff" as Mac;

export function encodeUdpFrame({ source, destination, payload }: UdpFrame): Uint8Array {
  const frame = new Uint8Array(PAYLOAD_AT + payload.length);
  const view = new DataView(frame.buffer);
  frame.set(macBytes(destination.mac), 0);
  frame.set(macBytes(source.mac), 6);
  view.setUint16(12, ETH_P_IP);
  frame.set([0x45, 0], NETWORK_AT);
  view.setUint16(NETWORK_AT + 2, HEADER_BYTES + UDP_BYTES + payload.length);
  frame.set([TIME_TO_LIVE, IPPROTO_UDP], NETWORK_AT + 8);
  frame.set(ipBytes(source.ip), NETWORK_AT + 12);
  frame.set(ipBytes(destination.ip), NETWORK_AT + 16);
  view.setUint16(NETWORK_AT + 10, checksumOf(frame.subarray(NETWORK_AT, UDP_AT)));
  view.setUint16(UDP_AT, source.port);
  view.setUint16(UDP_AT + 2, destination.port);
  view.setUint16(UDP_AT + 4, UDP_BYTES + payload.length);
  frame.set(payload, PAYLOAD_AT);
  view.setUint16(UDP_AT + 6, udpChecksum(frame) || 0xffff);
  return frame;
}

// The addresses and protocol count too (RFC 768, pseudo header).
function udpChecksum(frame: Uint8Array): number {
  const datagram = frame.subarray(UDP_AT);
  const pseudo = new Uint8Array(12 + datagram.length);
  pseudo.set(frame.subarray(NETWORK_AT + 12, UDP_AT));
  pseudo.set([0, IPPROTO_UDP, datagram.length >> 8, datagram.length & 0xff], 8);
  pseudo.set(datagram, 12);
  return checksumOf(pseudo);
}

/** @see RFC 1071 */
function checksumOf(bytes: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < bytes.length; i += 2) sum += bytes[i]! << 8 | (bytes[i + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return ~sum & 0xffff;
}

/**
 * Returns `undefined` for everything else, for fragments, and for what is cut short. Checksums are not compared:
 * between
 * links of one machine, the kernel leaves them out.
 */
export function decodeUdpFrame(frame: Uint8Array): UdpFrame | undefined {
  if (frame.length < PAYLOAD_AT) return undefined;
  const view = new DataView(frame.buffer, frame.byteOffset, frame.length);
  const headerBytes = (frame[NETWORK_AT]! & 0xf) * 4;
  const udpAt = NETWORK_AT + headerBytes;
  const ipEnd = NETWORK_AT + view.getUint16(NETWORK_AT + 2);
  const isUdp = view.getUint16(12) === ETH_P_IP && frame[NETWORK_AT]! >> 4 === 4 && headerBytes >= HEADER_BYTES &&
    frame[NETWORK_AT + 9] === IPPROTO_UDP && (view.getUint16(NETWORK_AT + 6) & FRAGMENT_MASK) === 0;
  if (!isUdp || ipEnd > frame.length || udpAt + UDP_BYTES > ipEnd) return undefined;
  const udpLength = view.getUint16(udpAt + 4);
  if (udpLength < UDP_BYTES || udpAt + udpLength > ipEnd) return undefined;
  const endpoint = (macAt: number, ipAt: number, portAt: number): UdpEndpoint => ({
    mac: macFromBytes(frame.subarray(macAt, macAt + 6)),
    ip: ipFromBytes(frame.subarray(ipAt, ipAt + 4)),
    port: view.getUint16(portAt),
  });
  return {
    source: endpoint(6, NETWORK_AT + 12, udpAt),
    destination: endpoint(0, NETWORK_AT + 16, udpAt + 2),
    payload: frame.subarray(udpAt + UDP_BYTES, udpAt + udpLength),
  };
}
