/** An IPv6 router on a wire, which announces itself. @module */
import { ipBytes, macBytes, parseIp, parseMac } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { openPacketSocket } from "../ffi/packet/packet_socket.ts";
import { IPPROTO_ICMPV6 } from "../ffi/sys/uapi.ts";
import * as link from "../ffi/route/link.ts";

const ALL_NODES = { mac: parseMac("33:33:00:00:00:01"), ip: parseIp("ff02::1") };

/**
 * Sends a router advertisement (RFC 4861 §4.2) with a default route for half an hour and the prefix of SLAAC.
 *
 * @param source the router's address, `fe80::1`
 * @param prefix of 64 bits, `2001:db8:7::`
 */
export function advertiseRouter(router: Netns, ifname: string, source: string, prefix: string): void {
  const { index, mac } = link.get(router.route, ifname);
  const [from, to] = [ipBytes(parseIp(source)), ipBytes(ALL_NODES.ip)];
  const advertisement = [134, 0, 0, 0, 64, 0, ...be(1800, 2), ...be(0, 4), ...be(0, 4)];
  // On this link, and for addresses.
  const prefixInformation = [
    3,
    4,
    64,
    0xc0,
    ...be(86_400, 4),
    ...be(14_400, 4),
    ...be(0, 4),
    ...ipBytes(parseIp(prefix)),
  ];
  const icmp = Uint8Array.from([...advertisement, ...prefixInformation]);
  const pseudoHeader = [...from, ...to, ...be(icmp.length, 4), ...be(IPPROTO_ICMPV6, 4)];
  icmp.set(be(checksumOf([...pseudoHeader, ...icmp]), 2), 2);
  const header = [0x60, 0, 0, 0, ...be(icmp.length, 2), IPPROTO_ICMPV6, 255, ...from, ...to];
  const frame = Uint8Array.from([...macBytes(ALL_NODES.mac), ...macBytes(mac!), 0x86, 0xdd, ...header, ...icmp]);
  router.run<void>(() => {
    using socket = openPacketSocket(index);
    if (!socket.send(frame)) throw new Error(`"${ifname}" sends nothing`);
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
