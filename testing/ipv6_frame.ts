/** Frames of IPv6 whose addresses are anybody's. @module */
import { type Ip, ipBytes, type Mac, macBytes } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { openPacketSocket } from "../ffi/packet/packet_socket.ts";
import * as link from "../ffi/route/link.ts";
import { IPPROTO_UDP } from "../ffi/sys/uapi.ts";

export interface Ipv6Packet {
  readonly source: Ip;
  readonly destination: Ip;
  readonly protocol: number;
  readonly hopLimit: number;
  /** The two bytes of its checksum are made here. */
  readonly payload: readonly number[];
  /** Where these are in the payload. */
  readonly checksumAt: number;
}

export interface Ipv6Datagram extends Pick<Ipv6Packet, "source" | "destination"> {
  readonly port: number;
}

/** @param receiver whose hardware address the frame has */
export function sendIpv6Datagram(netns: Netns, receiver: Mac, { port, ...ends }: Ipv6Datagram): void {
  const payload = [...be(4000, 2), ...be(port, 2), ...be(9, 2), 0, 0, 0x78];
  sendIpv6Frame(netns, "eth0", receiver, { ...ends, protocol: IPPROTO_UDP, hopLimit: 64, payload, checksumAt: 6 });
}

/** @param receiver whose hardware address the frame has */
export function sendIpv6Frame(
  netns: Netns,
  ifname: string,
  receiver: Mac,
  { source, destination, protocol, hopLimit, payload, checksumAt }: Ipv6Packet,
): void {
  const { index, mac } = link.get(netns.route, ifname);
  const [from, to] = [ipBytes(source), ipBytes(destination)];
  const content = Uint8Array.from(payload);
  const pseudoHeader = [...from, ...to, ...be(content.length, 4), ...be(protocol, 4)];
  content.set(be(checksumOf([...pseudoHeader, ...content]), 2), checksumAt);
  const header = [0x60, 0, 0, 0, ...be(content.length, 2), protocol, hopLimit, ...from, ...to];
  const frame = Uint8Array.from([...macBytes(receiver), ...macBytes(mac!), 0x86, 0xdd, ...header, ...content]);
  netns.run<void>(() => {
    using socket = openPacketSocket(index);
    if (!socket.send(frame)) throw new Error(`"${ifname}" of ${netns.path} sends nothing`);
  });
}

/** A number as the network has it, the first byte being the highest. */
export const be = (value: number, length: number): number[] =>
  Array.from({ length }, (_, i) => (value >>> (8 * (length - 1 - i))) & 0xff);

/** The Internet checksum of RFC 1071. */
function checksumOf(bytes: readonly number[]): number {
  let sum = 0;
  for (let i = 0; i < bytes.length; i += 2) sum += (bytes[i]! << 8) + (bytes[i + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}
