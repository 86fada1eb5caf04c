import { type Cidr, familyOf, type Ip, ipOf } from "../../ffi/address.ts";
import { outgoingRoute } from "../../ffi/route/route.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import type { PortmapConfig } from "./config.ts";
import { familiesOf } from "../../spec/port_mapping.ts";

/**
 * The host's address towards the container, as source for calls from 127.0.0.0/8. The kernel sends nothing from there
 * over a link.
 *
 * @returns `undefined` if no port is on IPv4 addresses, or there is no route
 */
export function findLoopbackSource(
  host: Netns,
  { snat, mappings }: PortmapConfig,
  addresses: readonly Cidr[],
): Ip | undefined {
  const address = addresses.find((candidate) => familyOf(candidate) === 4);
  if (!snat || !address || !mappings.some((mapping) => familiesOf(mapping).includes(4))) return undefined;
  return findSource(host, ipOf(address));
}

export function findSource(host: Netns, address: Ip): Ip | undefined {
  return ignoreErrors(["ENETUNREACH", "EHOSTUNREACH"], () => outgoingRoute(host.route, address).source);
}
