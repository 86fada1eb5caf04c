import { type Cidr, familyOf, type Ip, networksOverlap, prefixLengthOf } from "../../../ffi/address.ts";
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import type * as link from "../../../ffi/route/link.ts";
import * as route from "../../../ffi/route/route.ts";
import { RT_TABLE_MAIN } from "../../../ffi/route/uapi.ts";
import { findSysctl, sysctlWord } from "../../../ffi/sys/sysctl.ts";
import type { JsonObject } from "../../../spec/schema.ts";
import { checkFailedError } from "../protocol/check_failed.ts";
import { FORWARDING, forwardingCommand } from "./forwarding.ts";
import { configuredNetworks, type HostNetwork, type HostNetworks, MIN_FOREIGN_PREFIX_LENGTH } from "./host_networks.ts";

type Family = 4 | 6;

export function distinctFamilies(addresses: readonly (Ip | Cidr)[]): Family[] {
  return [...new Set(addresses.map(familyOf))];
}

function findUnforwarded(host: Netns, families: readonly Family[]): Family[] {
  return host.run(() => families.filter((family) => findSysctl(FORWARDING[family]) === "0"));
}

export function checkForwarding(host: Netns, families: readonly Family[]): void {
  const [family] = findUnforwarded(host, families);
  if (family === undefined) return;
  throw checkFailedError(
    `the host does not forward IPv${family} any more`,
    `the ADD turned it on; turn it on again: ${forwardingCommand(host, family)}`,
  );
}

/** @param remedy replaces the advice to the administrator */
export function describeUnforwarded(host: Netns, families: readonly Family[], remedy?: string): string[] {
  return findUnforwarded(host, families).map((family) =>
    `The host does not forward IPv${family}, so containers reach nothing beyond it: ${
      remedy ?? forwardingCommand(host, family)
    }`
  );
}

/** ADD leaves the setting of a link alone. */
export function describeUnforwardedLink(host: Netns, { name }: Pick<link.Link, "name">): string[] {
  const setting = `net/ipv4/conf/${name}/forwarding`;
  const isClosed = host.run(() => findSysctl(FORWARDING[4]) === "1" && findSysctl(setting) === "0");
  if (!isClosed) return [];
  return [`"${name}" does not forward IPv4, so no packets leave it: sysctl -w ${sysctlWord(setting)}=1`];
}

/** The addresses of a.root-servers.net, to look up routes; nothing is sent. */
export const PUBLIC_ADDRESS = { 4: "198.41.0.4", 6: "2001:503:ba3e::2:30" } as Readonly<Record<Family, Ip>>;

/** Reports only if all families lack a route: many hosts have only one of the two. */
export function describeMissingDefaultRoute(host: Netns, families: readonly Family[]): string[] {
  if (families.length === 0 || families.some((family) => hasRouteTo(host, PUBLIC_ADDRESS[family]))) return [];
  const names = families.map((family) => `IPv${family}`).join(" or ");
  return [`The host has no ${names} default route, so masquerading reaches only its own networks`];
}

function hasRouteTo(host: Netns, destination: Ip): boolean {
  return findRouteTo(host, destination) !== undefined;
}

export function findSourceAddress(host: Netns, destination: Ip): Ip | undefined {
  return findRouteTo(host, destination)?.source;
}

function findRouteTo(host: Netns, destination: Ip): ReturnType<typeof route.outgoingRoute> | undefined {
  try {
    return route.outgoingRoute(host.route, destination);
  } catch (error) {
    // Unreachable, prohibited or blackhole.
    if (error instanceof NetlinkError) return undefined;
    throw error;
  }
}

/**
 * Reports subnets that the host routes to a link that is not `isOwn`.
 *
 * @param overlap is left out: that is more than a wrong route
 */
export function describeForeignRoutes(
  { routes, findLink }: Pick<HostNetworks, "routes" | "findLink">,
  subnets: readonly Cidr[],
  isOwn: (device: link.Link) => boolean,
  overlap?: HostNetwork,
): string[] {
  const near = routes.filter(({ dst, table }) =>
    table === RT_TABLE_MAIN && prefixLengthOf(dst) >= MIN_FOREIGN_PREFIX_LENGTH
  );
  return subnets.flatMap((subnet) =>
    near.filter(({ dst }) => networksOverlap(dst, subnet)).flatMap(({ dst, oif }) => {
      const device = oif === undefined ? undefined : findLink(oif);
      const isForeign = device && device.index !== overlap?.device.index && !isOwn(device);
      return isForeign ? [describeForeignRoute(subnet, dst, device)] : [];
    })
  );
}

function describeForeignRoute(subnet: Cidr, dst: Cidr, { name }: link.Link): string {
  if (prefixLengthOf(dst) < prefixLengthOf(subnet)) {
    return `Subnet ${subnet} is part of ${dst}, which the host routes to "${name}": its addresses there cannot be reached`;
  }
  const part = dst === subnet ? "" : `${dst} of `;
  return `The host routes ${part}subnet ${subnet} to "${name}": containers with such addresses cannot be reached`;
}

export function configuredSubnets(raw: JsonObject): Cidr[] {
  return [...new Set(configuredNetworks(raw).map(({ subnet }) => subnet))];
}
