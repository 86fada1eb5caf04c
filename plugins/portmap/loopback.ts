/** Ports that are published on loopback addresses of the host. */
import { type Cidr, familyOf, type Ip, ipOf } from "../../ffi/address.ts";
import { outgoingRoute } from "../../ffi/route/route.ts";
import type { Netns } from "../../ffi/netns.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { CniError, Code } from "../../spec/error.ts";
import { describeHostPort, familiesOf, hostAddressOf, type PortmapConfig, type PortMapping } from "./config.ts";

/**
 * The address of the host by which it reaches the container: calls from 127.0.0.1 to its published ports get it as their source, since
 * the kernel sends nothing from 127.0.0.1 over a link.
 *
 * @returns `undefined` if no port is published on loopback addresses, or the host has no way to the container
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

/** The address of the host by which it reaches another one; `undefined` if it does not. */
export function findSource(host: Netns, address: Ip): Ip | undefined {
  return ignoreErrors(["ENETUNREACH", "EHOSTUNREACH"], () => outgoingRoute(host.route, address).source);
}

/** Whether calls to loopback addresses of the host reach the port. */
export function reachesLoopback(mapping: PortMapping): boolean {
  return hostAddressOf(mapping)?.startsWith("127.") ?? true;
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
