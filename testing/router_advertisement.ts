/** An IPv6 router on a wire, which announces itself. @module */
import { ipBytes, parseIp, parseMac } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { IPPROTO_ICMPV6 } from "../ffi/sys/uapi.ts";
import { be, sendIpv6Frame } from "./ipv6_frame.ts";

const ALL_NODES = { mac: parseMac("33:33:00:00:00:01"), ip: parseIp("ff02::1") };

/**
 * Sends a router advertisement (RFC 4861 §4.2) with a default route for half an hour and the prefix of SLAAC.
 *
 * @param source the router's address, `fe80::1`
 * @param prefix of 64 bits, `2001:db8:7::`
 */
export function advertiseRouter(router: Netns, ifname: string, source: string, prefix: string): void {
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
  sendIpv6Frame(router, ifname, ALL_NODES.mac, {
    source: parseIp(source),
    destination: ALL_NODES.ip,
    protocol: IPPROTO_ICMPV6,
    hopLimit: 255,
    payload: [...advertisement, ...prefixInformation],
    checksumAt: 2,
  });
}
