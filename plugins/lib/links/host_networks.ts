/**
 * The networks that the host itself is in. If containers got one of them too, packets of the host would go to the
 * bridge. The host would answer for its own router.
 *
 * @module
 */
import {
  type Cidr,
  familyOf,
  hostPrefix,
  type Ip,
  ipOf,
  isHostPrefix,
  networkOf,
  networksOverlap,
  nextIp,
  parseCidr,
  parseIp,
  prefixLengthOf,
} from "../../../ffi/address.ts";
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import * as address from "../../../ffi/route/address.ts";
import { vrf } from "../../../ffi/route/link_kinds.ts";
import * as link from "../../../ffi/route/link.ts";
import * as route from "../../../ffi/route/route.ts";
import {
  IFF_NOARP,
  IFF_POINTOPOINT,
  RT_SCOPE_LINK,
  RT_SCOPE_UNIVERSE,
  RT_TABLE_MAIN,
} from "../../../ffi/route/uapi.ts";
import { CniError, Code } from "../../../spec/error.ts";
import type { IpConfig } from "../../../spec/result.ts";
import { boolean, findValue, isJsonObject, type JsonObject, withDefault } from "../../../spec/schema.ts";
import { parseAlias } from "../model/owner.ts";
import { isCreatedHere } from "./created_link.ts";

export const routeOverlapKeys = () => ({
  /** Whether the host's own networks may be the containers' too. */
  allowRouteOverlap: withDefault(boolean, false),
});

/** An address or a connected route of one of the host's links. */
export interface HostNetwork {
  readonly kind: "address" | "route";
  /** An address with its host bits, or the destination. */
  readonly prefix: Cidr;
  readonly device: link.Link;
}

/** Reading it takes long with a thousand links. */
export interface HostNetworks {
  readonly addresses: readonly address.InterfaceAddress[];
  readonly routes: readonly route.UnicastRoute[];
  findLink(index: number): link.Link | undefined;
  hasPorts(bridge: link.Link): boolean;
}

/** Reads the families that a network wants, and the routing table of its link. */
export function readHostNetworks(
  host: Netns,
  wanted: readonly WantedNetwork[],
  device: GatewayDevice | undefined,
): HostNetworks {
  const findLink = (index: number) => link.find(host.route, index);
  const table = findVrf(findLink, device)?.table ?? RT_TABLE_MAIN;
  const families = [...new Set(wanted.map(({ subnet }) => address.addressFamily(subnet)))];
  return {
    addresses: families.flatMap((family) => address.list(host.route, { family })),
    routes: families.flatMap((family) => route.list(host.route, family, table)),
    findLink,
    hasPorts: ({ index }) => link.list(host.route, { master: index }).length > 0,
  };
}

export interface WantedNetwork {
  readonly subnet: Cidr;
  readonly gateway: Ip | undefined;
  /** The container's; absent while nobody has one. */
  readonly address?: Ip;
}

export function wantedOf(ips: readonly IpConfig[]): WantedNetwork[] {
  return ips.map(({ address: cidr, gateway }) => ({ subnet: networkOf(cidr), gateway, address: ipOf(cidr) }));
}

/** The link that gets the gateway, if it is there already. */
export type GatewayDevice = Pick<link.Link, "index" | "master">;

export function findOverlap(
  networks: HostNetworks,
  device: GatewayDevice | undefined,
  wanted: readonly WantedNetwork[],
): HostNetwork | undefined {
  for (const each of wanted) {
    for (const { kind, prefix, index } of listPrefixes(networks)) {
      if (index === device?.index || !overlaps(prefix, each, false)) continue;
      const other = networks.findLink(index);
      if (!other || isShared(networks, other, each)) continue;
      if (findVrf(networks.findLink, other)?.index !== findVrf(networks.findLink, device)?.index) continue;
      if (isTunnel(other) && !(kind === "address" && overlaps(prefix, each, true))) continue;
      return { kind, prefix, device: other };
    }
  }
  return undefined;
}

function* listPrefixes({ addresses, routes }: HostNetworks) {
  for (const { address: prefix, index, scope } of addresses) {
    if (scope !== RT_SCOPE_LINK) yield { kind: "address", prefix, index } as const;
  }
  for (const found of routes) {
    if (isConnected(found)) yield { kind: "route", prefix: found.dst, index: found.oif } as const;
  }
}

/** IPv4 routes may have a gateway of IPv6, in an attribute of its own: the scope tells. */
function isConnected(found: route.UnicastRoute): found is route.UnicastRoute & { readonly oif: number } {
  const { dst, oif, gateway, scope } = found;
  if (oif === undefined || gateway !== undefined) return false;
  return familyOf(dst) === 6 || scope !== RT_SCOPE_UNIVERSE;
}

/** Shorter prefixes replace a default route: `0.0.0.0/1` of a VPN, `2000::/3`. */
export const MIN_FOREIGN_PREFIX_LENGTH = 8;

/**
 * Nobody else is in the network of a single address: flannel has one in each node's subnet. Then only the same address
 * is in the way.
 */
function overlaps(prefix: Cidr, { subnet, gateway, address: ip }: WantedNetwork, isSingle: boolean): boolean {
  if (prefixLengthOf(prefix) < MIN_FOREIGN_PREFIX_LENGTH) return false;
  return isSingle || isHostPrefix(prefix) ? [gateway, ip].includes(ipOf(prefix)) : networksOverlap(prefix, subnet);
}

/** Links of containers, and bridges that have none any more. */
function isShared(networks: HostNetworks, other: link.Link, { gateway }: WantedNetwork): boolean {
  if (parseAlias(other.alias)) return true;
  if (isCreatedHere(other)) return other.info?.kind !== "bridge" || !networks.hasPorts(other);
  return gateway !== undefined && other.info?.kind === "veth" && hasOnly(networks, other, gateway);
}

/** The reference `ptp` gives each container's link the gateway as a single address. */
function hasOnly({ addresses }: HostNetworks, { index }: link.Link, gateway: Ip): boolean {
  const own = addresses.filter((entry) =>
    entry.index === index && entry.scope !== RT_SCOPE_LINK && familyOf(entry.address) === familyOf(gateway)
  );
  return own.length > 0 && own.every(({ address: cidr }) => cidr === hostPrefix(gateway));
}

/** A VRF has a routing table of its own. */
function findVrf(
  findLink: HostNetworks["findLink"],
  device: GatewayDevice | undefined,
): { readonly index: number; readonly table: number | undefined } | undefined {
  const master = device?.master === undefined ? undefined : findLink(device.master);
  const found = master && vrf.of(master);
  return found && { index: master.index, table: found.table };
}

const ETHERNET_TUNNELS = ["vxlan", "geneve", "gretap", "ip6gretap", "erspan", "ip6erspan"];

/** Its routes lead through another link, such as those of a VPN. A dummy leads nowhere. */
export function isTunnel({ flags, info }: link.Link): boolean {
  if (info?.kind === "dummy") return false;
  return (flags & (IFF_POINTOPOINT | IFF_NOARP)) !== 0 || ETHERNET_TUNNELS.includes(info?.kind ?? "");
}

export function describeHostNetwork({ kind, prefix, device: { name } }: HostNetwork): string {
  return kind === "address"
    ? `address ${prefix} of the host's link "${name}"`
    : `the connected route to ${prefix} by the host's link "${name}"`;
}

export function describeOverlap(found: HostNetwork, subnets: readonly Cidr[]): string {
  const subnet = subnets.find((each) => networksOverlap(each, found.prefix));
  // A gateway of ptp may be outside.
  return `${subnet ? `subnet ${subnet}` : "the gateway"} overlaps ${describeHostNetwork(found)}`;
}

const REMEDY = 'choose another subnet; "allowRouteOverlap": true lets the network have it all the same';

export function overlapError(
  code: Code,
  purpose: string,
  found: HostNetwork,
  wanted: readonly WantedNetwork[],
): CniError {
  const subnets = wanted.map(({ subnet }) => subnet);
  return new CniError(code, `Cannot ${purpose}: ${describeOverlap(found, subnets)}`, { details: REMEDY });
}

/**
 * @param isNew whether the host does not have the gateways yet. Else, only the containers' addresses are looked up.
 * @throws {CniError} if the host itself is in one of the networks
 */
export function refuseOverlap(
  host: Netns,
  device: GatewayDevice,
  wanted: readonly WantedNetwork[],
  isNew: boolean,
): void {
  if (!isNew && areUnused(host, device, wanted)) return;
  const found = findOverlap(readHostNetworks(host, wanted, device), device, wanted);
  if (found) throw overlapError(Code.InvalidConfig, "attach the container", found, wanted);
}

/** Whether the host has none of the addresses, nor a connected route to them by another link. */
function areUnused(host: Netns, { index }: GatewayDevice, wanted: readonly WantedNetwork[]): boolean {
  const matches = tryMatchAll(host, wanted.flatMap(({ address: ip }) => ip ?? []));
  return matches?.every((match) =>
    !match || match.oif === index || match.hasGateway || prefixLengthOf(match.dst) < MIN_FOREIGN_PREFIX_LENGTH
  ) ?? false;
}

/** `undefined` if a route refuses. */
export function tryMatchAll(host: Netns, ips: readonly Ip[]): (route.RouteMatch | undefined)[] | undefined {
  try {
    return route.matchAll(host.route, ips);
  } catch (error) {
    if (error instanceof NetlinkError) return undefined;
    throw error;
  }
}

/** What a configuration wants, as host-local and static read it. A gateway is the first address unless it is named. */
export function configuredNetworks(raw: JsonObject): WantedNetwork[] {
  const ipam = findValue(raw, "ipam");
  if (!isJsonObject(ipam)) return [];
  const rangesAndAddresses = [ipam, ...[findValue(ipam, "ranges"), findValue(ipam, "addresses")].flat(2)];
  return rangesAndAddresses.filter(isJsonObject).flatMap((node) =>
    ["subnet", "address"].flatMap((key) => parseWanted(findValue(node, key), findValue(node, "gateway")))
  );
}

/** The IPAM plugin refuses invalid ones. */
function parseWanted(text: unknown, gateway: unknown): WantedNetwork[] {
  if (typeof text !== "string") return [];
  try {
    const subnet = networkOf(parseCidr(text));
    return [{ subnet, gateway: typeof gateway === "string" ? parseIp(gateway) : nextIp(ipOf(subnet)) }];
  } catch {
    return [];
  }
}
