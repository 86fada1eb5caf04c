import {
  type Cidr,
  familyOf,
  type Ip,
  networkOf,
  networksOverlap,
  parseCidr,
  prefixLengthOf,
} from "../../../ffi/address.ts";
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import type { Netns } from "../../../ffi/netns.ts";
import * as link from "../../../ffi/route/link.ts";
import * as route from "../../../ffi/route/route.ts";
import { RT_TABLE_MAIN } from "../../../ffi/route/uapi.ts";
import { AF_INET, AF_INET6 } from "../../../ffi/sys/uapi.ts";
import { findSysctl, sysctlWord } from "../../../ffi/sysctl.ts";
import { findValue, isJsonObject, type JsonObject } from "../../../spec/schema.ts";
import { checkFailedError } from "../protocol/check_failed.ts";

type Family = 4 | 6;

export function distinctFamilies(addresses: readonly (Ip | Cidr)[]): Family[] {
  return [...new Set(addresses.map(familyOf))];
}

export const FORWARDING: Readonly<Record<Family, string>> = {
  4: "net/ipv4/ip_forward",
  6: "net/ipv6/conf/all/forwarding",
};

function findUnforwarded(host: Netns, families: readonly Family[]): Family[] {
  return host.run(() => families.filter((family) => findSysctl(FORWARDING[family]) === "0"));
}

const remedyFor = (family: Family): string => `sysctl -w ${sysctlWord(FORWARDING[family])}=1`;

/** @throws {CniError} if the host does not forward a family */
export function checkForwarding(host: Netns, families: readonly Family[]): void {
  const [family] = findUnforwarded(host, families);
  if (family === undefined) return;
  throw checkFailedError(
    `the host does not forward IPv${family} any more`,
    `the ADD turned it on; turn it on again: ${remedyFor(family)}`,
  );
}

/** @param remedy replaces the advice to the administrator */
export function describeUnforwarded(host: Netns, families: readonly Family[], remedy?: string): string[] {
  return findUnforwarded(host, families).map((family) =>
    `The host does not forward IPv${family}, so containers reach nothing beyond it: ${remedy ?? remedyFor(family)}`
  );
}

/** Reports a link that does not forward although the host does. ADD leaves that setting alone. */
export function describeUnforwardedLink(host: Netns, { name }: Pick<link.Link, "name">): string[] {
  const setting = `net/ipv4/conf/${name}/forwarding`;
  const isClosed = host.run(() => findSysctl(FORWARDING[4]) === "1" && findSysctl(setting) === "0");
  if (!isClosed) return [];
  return [`"${name}" does not forward IPv4, so no packets leave it: sysctl -w ${sysctlWord(setting)}=1`];
}

/** a.root-servers.net; nothing is sent. */
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

/** The host's address for packets to a destination; `undefined` without a route. */
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

/** Shorter prefixes replace a default route: `0.0.0.0/1` of a VPN, `2000::/3`. */
export const MIN_FOREIGN_PREFIX_LENGTH = 8;

/** Reports subnets that the host routes to a link that is not `isOwn`. */
export function describeForeignRoutes(
  host: Netns,
  subnets: readonly Cidr[],
  isOwn: (device: link.Link) => boolean,
): string[] {
  return subnets.flatMap((subnet) =>
    route.list(host.route, familyOf(subnet) === 4 ? AF_INET : AF_INET6, RT_TABLE_MAIN)
      .filter(({ dst }) => prefixLengthOf(dst) >= MIN_FOREIGN_PREFIX_LENGTH && networksOverlap(dst, subnet))
      .flatMap(({ dst, oif }) => {
        const device = oif === undefined ? undefined : link.find(host.route, oif);
        return device && !isOwn(device) ? [describeForeignRoute(subnet, dst, device)] : [];
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

/** The subnets of a configuration, as host-local and static read them. */
export function configuredSubnets(raw: JsonObject): Cidr[] {
  const ipam = findValue(raw, "ipam");
  if (!isJsonObject(ipam)) return [];
  const rangesAndAddresses = [ipam, ...[findValue(ipam, "ranges"), findValue(ipam, "addresses")].flat(2)];
  const texts = rangesAndAddresses.filter(isJsonObject)
    .flatMap((node) => [findValue(node, "subnet"), findValue(node, "address")])
    .filter((text) => typeof text === "string");
  return [...new Set(texts.flatMap(parseSubnet))];
}

/** The IPAM plugin refuses invalid ones. */
function parseSubnet(text: string): Cidr[] {
  try {
    return [networkOf(parseCidr(text))];
  } catch {
    return [];
  }
}
