import { type Cidr, familyOf, type Ip, ipOf } from "../../ffi/address.ts";
import { outgoingRoute } from "../../ffi/route/route.ts";
import type { Netns } from "../../ffi/netns.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { CniError, Code } from "../../spec/error.ts";
import { describeHostPort, familiesOf, hostAddressOf, type PortmapConfig, type PortMapping } from "./config.ts";

/**
 * The host's address towards the container, as source for calls from 127.0.0.1: the kernel sends nothing from 127.0.0.1 over a link.
 *
 * @returns `undefined` if no port is on loopback addresses, or there is no route
 */
export function findLoopbackSource(
  host: Netns,
  { snat, mappings }: PortmapConfig,
  addresses: readonly Cidr[],
): Ip | undefined {
  const address = addresses.find((candidate) => familyOf(candidate) === 4);
  if (!snat || !address || !mappings.some((mapping) => familiesOf(mapping).includes(4) && reachesLoopback(mapping))) {
    return undefined;
  }
  return findSource(host, ipOf(address));
}

/** `undefined` without a route. */
export function findSource(host: Netns, address: Ip): Ip | undefined {
  return ignoreErrors(["ENETUNREACH", "EHOSTUNREACH"], () => outgoingRoute(host.route, address).source);
}

export function reachesLoopback(mapping: PortMapping): boolean {
  return hostAddressOf(mapping)?.startsWith("127.") ?? true;
}

/** @throws {CniError} for a port on ::1: callers would get no answer */
export function refuseIpv6Loopback(mappings: readonly PortMapping[]): void {
  const mapping = mappings.find(({ hostIP }) => hostIP === "::1");
  if (!mapping) return;
  throw new CniError(
    Code.InvalidConfig,
    `Cannot publish ${describeHostPort(mapping)}: the kernel delivers no answer to ::1 from another interface`,
    { details: "publish it on 127.0.0.1, on another IPv6 address of the host, or on all addresses" },
  );
}
