/**
 * Packets of VXLAN as somebody with a raw socket can write them.
 *
 * @module
 */
import { familyOf, type Ip, ipBytes, type Mac, macBytes } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { openPacketSocket, type PacketSocket } from "../ffi/packet/packet_socket.ts";
import * as link from "../ffi/route/link.ts";
import { ETH_P_IP, ETH_P_IPV6, IPPROTO_UDP } from "../ffi/sys/uapi.ts";

export interface Datagram {
  readonly from: Ip;
  readonly to: Ip;
  readonly port: number;
  readonly payload: Uint8Array;
}

/** Sends it by a link, as a frame to `mac`. */
export function sendFrame(netns: Netns, ifname: string, mac: Mac, datagram: Datagram): void {
  const { index, mac: from } = link.get(netns.route, ifname);
  using socket = netns.run<PacketSocket>(() => openPacketSocket(index));
  if (!socket.send(ethernetFrame(from!, mac, datagram))) throw new Error(`Cannot send by ${ifname}`);
}

export function ethernetFrame(from: Mac, to: Mac, datagram: Datagram): Uint8Array {
  const type = familyOf(datagram.from) === 4 ? ETH_P_IP : ETH_P_IPV6;
  return Uint8Array.of(...macBytes(to), ...macBytes(from), type >> 8, type & 0xff, ...packetOf(datagram));
}

export function vxlanPayload(vni: number, innerFrame: Uint8Array): Uint8Array {
  return Uint8Array.of(8, 0, 0, 0, vni >> 16, vni >> 8, vni, 0, ...innerFrame);
}

function packetOf({ from, to, port, payload }: Datagram): Uint8Array {
  const length = 8 + payload.length;
  const udp = Uint8Array.of(0x30, 0x39, port >> 8, port, length >> 8, length, 0, 0, ...payload);
  const addresses = [...ipBytes(from), ...ipBytes(to)];
  const sum = checksum([...addresses, 0, IPPROTO_UDP, length >> 8, length & 0xff, ...udp]) || 0xffff;
  udp.set([sum >> 8, sum & 0xff], 6);
  if (familyOf(from) === 6) {
    return Uint8Array.of(0x60, 0, 0, 0, length >> 8, length, IPPROTO_UDP, 64, ...addresses, ...udp);
  }
  const total = 20 + length;
  const header = Uint8Array.of(0x45, 0, total >> 8, total, 0, 0, 0, 0, 64, IPPROTO_UDP, 0, 0, ...addresses);
  const headerSum = checksum([...header]);
  header.set([headerSum >> 8, headerSum & 0xff], 10);
  return Uint8Array.of(...header, ...udp);
}

/** @see RFC 1071 */
function checksum(bytes: readonly number[]): number {
  let sum = 0;
  for (let i = 0; i < bytes.length; i += 2) sum += bytes[i]! << 8 | (bytes[i + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}
