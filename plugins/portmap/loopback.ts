/**
 * Ports that are published on loopback addresses of the host.
 *
 * @module
 */
import { type Cidr, familyOf, ipOf } from "../../ffi/address.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import * as link from "../../ffi/route/link.ts";
import { outgoingLink } from "../../ffi/route/route.ts";
import type { Netns } from "../../ffi/netns.ts";
import { CniError, Code } from "../../spec/error.ts";
import { requireSysctl } from "../lib/links/sysctls.ts";
import { describeHostPort, hostAddressOf, type PortmapConfig, type PortMapping } from "./config.ts";
import { mappingsForFamily } from "./elements.ts";

/**
 * Lets the container's link carry packets that come from 127.0.0.1 before they are translated; without it a port published on the host's
 * loopback addresses cannot be reached over IPv4.
 */
export function enableRouteLocalnet(host: Netns, { snat, mappings }: PortmapConfig, address: Cidr): void {
  if (!snat || familyOf(address) !== 4 || !mappingsForFamily(mappings, address).some(reachesLoopback)) return;
  const index = findOutgoingInterface(host, address);
  const name = index === undefined ? undefined : link.find(host.route, index)?.name;
  if (name !== undefined) host.run(() => requireSysctl(`net/ipv4/conf/${name}/route_localnet`, "1"));
}

function reachesLoopback(mapping: PortMapping): boolean {
  return hostAddressOf(mapping)?.startsWith("127.") ?? true;
}

/** By which link the container is reached; `undefined` if it is not. */
function findOutgoingInterface(host: Netns, address: Cidr): number | undefined {
  try {
    return outgoingLink(host.route, ipOf(address));
  } catch (error) {
    if (error instanceof NetlinkError && ["ENETUNREACH", "EHOSTUNREACH"].includes(error.code)) return undefined;
    throw error;
  }
}

/** @throws {CniError} for a port on ::1: whoever calls it would wait for an answer that never comes */
export function refuseIpv6Loopback(mappings: readonly PortMapping[]): void {
  const mapping = mappings.find(({ hostIP }) => hostIP === "::1");
  if (!mapping) return;
  throw new CniError(
    Code.InvalidConfig,
    `Cannot publish ${describeHostPort(mapping)}: the kernel delivers no answer to ::1 from another interface`,
    { details: "publish it on 127.0.0.1, on another IPv6 address of the host, or on all addresses" },
  );
}
