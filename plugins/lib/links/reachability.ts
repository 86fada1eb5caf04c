import {
  type Cidr,
  familyOf,
  hostPrefix,
  type Ip,
  ipOf,
  networksOverlap,
  prefixLengthOf,
} from "../../../ffi/address.ts";
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import type * as link from "../../../ffi/route/link.ts";
import * as route from "../../../ffi/route/route.ts";
import { RT_TABLE_MAIN } from "../../../ffi/route/uapi.ts";
import { findSysctl, sysctlWord } from "../../../ffi/sys/sysctl.ts";
import type { JsonObject } from "../../../spec/schema.ts";
import type { BridgeModel } from "../model/network_model.ts";
import { checkFailedError } from "../protocol/check_failed.ts";
import { parseAlias } from "../model/owner.ts";
import { FORWARDING, forwardingCommand } from "./forwarding.ts";
import { configuredNetworks, type HostNetwork, type HostNetworks, MIN_FOREIGN_PREFIX_LENGTH } from "./host_networks.ts";

type Family = 4 | 6;

export function distinctFamilies(addresses: readonly (Ip | Cidr)[]): Family[] {
  return [...new Set(addresses.map(familyOf))];
}

type ReadSysctl = (name: string) => string | undefined;

export function isForwardingOff(sysctl: ReadSysctl, family: Family): boolean {
  return sysctl(FORWARDING[family]) === "0";
}

/** ADD leaves the setting of a link alone. @returns its name if it alone is off */
export function findUnforwardedLink(sysctl: ReadSysctl, { name }: Pick<link.Link, "name">): string | undefined {
  const setting = `net/ipv4/conf/${name}/forwarding`;
  return !isForwardingOff(sysctl, 4) && sysctl(setting) === "0" ? setting : undefined;
}

function findUnforwarded(host: Netns, families: readonly Family[]): Family[] {
  return host.run(() => families.filter((family) => isForwardingOff(findSysctl, family)));
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

export function describeUnforwardedLink(host: Netns, { name }: Pick<link.Link, "name">): string[] {
  const setting = host.run(() => findUnforwardedLink(findSysctl, { name }));
  if (setting === undefined) return [];
  return [`"${name}" does not forward IPv4, so no packets leave it: sysctl -w ${sysctlWord(setting)}=1`];
}

/** The addresses of a.root-servers.net, to look up routes; nothing is sent. */
export const PUBLIC_ADDRESS = { 4: "198.41.0.4", 6: "2001:503:ba3e::2:30" } as Readonly<Record<Family, Ip>>;

/** Reports only if all families lack a route: many hosts have only one of the two. */
export function describeMissingDefaultRoute(host: Netns, families: readonly Family[]): string[] {
  if (families.length === 0 || families.some((family) => findRouteTo(host, PUBLIC_ADDRESS[family]))) return [];
  const names = families.map((family) => `IPv${family}`).join(" or ");
  return [`The host has no ${names} default route, so masquerading reaches only its own networks`];
}

export function findSourceAddress(host: Netns, destination: Ip): Ip | undefined {
  return findRouteTo(host, destination)?.source;
}

export function findRouteTo(host: Netns, destination: Ip): ReturnType<typeof route.outgoingRoute> | undefined {
  try {
    return route.outgoingRoute(host.route, destination);
  } catch (error) {
    // Unreachable, prohibited or blackhole.
    if (error instanceof NetlinkError) return undefined;
    throw error;
  }
}

/** A route to a network's subnet, or to a part of it, by a link that is not the network's. */
export interface ForeignRoute {
  readonly subnet: Cidr;
  readonly dst: Cidr;
  readonly device: link.Link;
}

/** Whether a link carries packets of the network's containers. */
export function ownLinkTest(bridge: BridgeModel | undefined, network: string): (device: link.Link) => boolean {
  return ({ name = "", alias }) => bridge?.links.includes(name) || parseAlias(alias)?.network === network;
}

/** @param overlap its link is left out: that is more than a wrong route */
export function listForeignRoutes(
  { addresses, routes, findLink }: Pick<HostNetworks, "addresses" | "routes" | "findLink">,
  subnets: readonly Cidr[],
  isOwn: (device: link.Link) => boolean,
  overlap?: HostNetwork,
): ForeignRoute[] {
  // The kernel adds such a route for an IPv6 address of the host.
  const isOwnAddress = ({ dst, oif }: route.UnicastRoute) =>
    addresses.some(({ address, index }) => index === oif && dst === hostPrefix(ipOf(address)));
  const near = routes.filter((found) =>
    found.table === RT_TABLE_MAIN && prefixLengthOf(found.dst) >= MIN_FOREIGN_PREFIX_LENGTH && !isOwnAddress(found)
  );
  return subnets.flatMap((subnet) =>
    near.filter(({ dst }) => familyOf(dst) === familyOf(subnet) && networksOverlap(dst, subnet)).flatMap(
      ({ dst, oif }) => {
        const device = oif === undefined ? undefined : findLink(oif);
        return device && device.index !== overlap?.device.index && !isOwn(device) ? [{ subnet, dst, device }] : [];
      },
    )
  );
}

export function describeForeignRoute({ subnet, dst, device: { name } }: ForeignRoute): string {
  if (prefixLengthOf(dst) < prefixLengthOf(subnet)) {
    return `Subnet ${subnet} is part of ${dst}, which the host routes to "${name}": its addresses there cannot be reached`;
  }
  const part = dst === subnet ? "" : `${dst} of `;
  return `The host routes ${part}subnet ${subnet} to "${name}": containers with such addresses cannot be reached`;
}

export function configuredSubnets(raw: JsonObject): Cidr[] {
  return [...new Set(configuredNetworks(raw).map(({ subnet }) => subnet))];
}
