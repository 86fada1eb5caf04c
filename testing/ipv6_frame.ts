/** Frames with a UDP packet of IPv6 whose addresses are anybody's. @module */
import { type Ip, ipBytes, type Mac, macBytes } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { openPacketSocket } from "../ffi/packet/packet_socket.ts";
import * as link from "../ffi/route/link.ts";
import { IPPROTO_UDP } from "../ffi/sys/uapi.ts";

export interface Ipv6Datagram {
  readonly source: Ip;
  readonly destination: Ip;
  readonly port: number;
}

/** @param receiver whose hardware address the frame has */
export function sendIpv6Datagram(netns: Netns, receiver: Mac, { source, destination, port }: Ipv6Datagram): void {
  const { index, mac } = link.get(netns.route, "eth0");
  const [from, to] = [ipBytes(source), ipBytes(destination)];
  const udp = Uint8Array.from([...be(4000, 2), ...be(port, 2), ...be(9, 2), 0, 0, 0x78]);
  const pseudoHeader = [...from, ...to, ...be(udp.length, 4), ...be(IPPROTO_UDP, 4)];
  udp.set(be(checksumOf([...pseudoHeader, ...udp]), 2), 6);
  const header = [0x60, 0, 0, 0, ...be(udp.length, 2), IPPROTO_UDP, 64, ...from, ...to];
  const frame = Uint8Array.from([...macBytes(receiver), ...macBytes(mac!), 0x86, 0xdd, ...header, ...udp]);
  netns.run<void>(() => {
    using socket = openPacketSocket(index);
    if (!socket.send(frame)) throw new Error(`eth0 of ${netns.path} sends nothing`);
  });
}

const be = (value: number, length: number): number[] =>
  Array.from({ length }, (_, i) => (value >>> (8 * (length - 1 - i))) & 0xff);

/** The Internet checksum of RFC 1071. */
function checksumOf(bytes: readonly number[]): number {
  let sum = 0;
  for (let i = 0; i < bytes.length; i += 2) sum += (bytes[i]! << 8) + (bytes[i + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}
