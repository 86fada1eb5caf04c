/** What a peer needs in the kernel: by which way each of its ranges is reached. */
import { type Cidr, containsIp, familyOf, type Ip, ipOf, type Mac, prefixLengthOf } from "../../ffi/address.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { addressFamily } from "../../ffi/route/address.ts";
import { encapsulate, type Encapsulation, encapsulationOf } from "../../ffi/route/encapsulation.ts";
import type { Link } from "../../ffi/route/link.ts";
import type { RawRoute } from "../../ffi/route/raw_route.ts";
import { matchEach } from "../../ffi/route/match_each.ts";
import type { RouteMatch } from "../../ffi/route/route.ts";
import {
  IFF_NOARP,
  IFF_POINTOPOINT,
  RT_SCOPE_UNIVERSE,
  RT_TABLE_MAIN,
  RTN_UNICAST,
  RTN_UNREACHABLE,
  RTNH_F_ONLINK,
} from "../../ffi/route/uapi.ts";
import type { ClusterNode } from "../node.ts";
import { type ClusterSettings, ROUTE_PROTOCOL } from "./settings.ts";
import { tunnelAddress, tunnelGateway, tunnelMac, tunnelOverhead } from "./tunnel.ts";

/** What the kernel says of this node. */
export interface HostFacts {
  readonly links: ReadonlyMap<number, Link>;
  readonly localAddresses: ReadonlySet<Ip>;
  /** Absent if there is no tunnel. */
  readonly tunnelIndex: number | undefined;
}

export interface PlannedRoute {
  readonly dst: Cidr;
  /** Both are absent for a range of this node: what no pod has is refused, and goes to no router. */
  readonly oif?: number;
  readonly gateway?: Ip;
  /** Where the kernel has a choice, the source of this node's own packets. */
  readonly prefsrc?: Ip | undefined;
  readonly encapsulation?: Encapsulation;
}

export interface PlannedNeighbour {
  readonly address: Ip;
  readonly mac: Mac;
}

export interface PeerPlan {
  readonly routes: readonly PlannedRoute[];
  readonly neighbours: readonly PlannedNeighbour[];
  /** Links whose changes may change the plan. */
  readonly links: readonly number[];
  /** The largest packet to its pods; absent while the node cannot be reached. */
  readonly mtu: number | undefined;
  readonly problems: readonly string[];
}

export type Matches = ReadonlyMap<Ip, RouteMatch | NetlinkError>;

/** Asks the kernel for the ways to the nodes themselves. */
export function matchNodes(nl: Netlink, nodes: readonly ClusterNode[]): Matches {
  const addresses = nodes.flatMap((node) => node.addresses);
  const matches = matchEach(nl, addresses);
  return new Map(addresses.map((ip, i) => [ip, matches[i]!]));
}

/** The families of the tunnel between two nodes: both choose the same. */
export function underlayOf(
  own: ClusterNode,
  peer: ClusterNode,
): { readonly source: Ip; readonly destination: Ip } | undefined {
  for (const family of [4, 6] as const) {
    const source = addressOf(own, family);
    const destination = addressOf(peer, family);
    if (source !== undefined && destination !== undefined) return { source, destination };
  }
  return undefined;
}

const addressOf = ({ addresses }: ClusterNode, family: 4 | 6): Ip | undefined =>
  addresses.find((ip) => familyOf(ip) === family);

type Way =
  | { readonly route: PlannedRoute; readonly neighbour?: PlannedNeighbour; readonly mtu: number | undefined }
  | { readonly problem: string };

export function planPeer(
  own: ClusterNode,
  peer: ClusterNode,
  settings: ClusterSettings,
  host: HostFacts,
  matches: Matches,
): PeerPlan {
  const twin = peer.addresses.find((ip) => own.addresses.includes(ip));
  if (twin !== undefined) return refused(`Node "${peer.name}" has address ${twin}, as this node: it gets no routes`);
  if (peer.addresses.length === 0) {
    return refused(`Node "${peer.name}" has no InternalIP that is an address: it gets no routes`);
  }
  const ways = peer.podCidrs.map((cidr): Way =>
    directWay(own, peer, cidr, settings, host, matches) ?? tunnelWay(own, peer, cidr, settings, host, matches)
  );
  const found = ways.flatMap((way) => "route" in way ? [way] : []);
  const mtus = found.flatMap(({ mtu }) => mtu ?? []);
  return {
    routes: found.map(({ route }) => route),
    neighbours: found.flatMap(({ neighbour }) => neighbour ?? []),
    links: peer.addresses.flatMap((ip) => usable(matches.get(ip))?.oif ?? []),
    mtu: mtus.length > 0 ? Math.min(...mtus) : undefined,
    problems: ways.flatMap((way) => "problem" in way ? [way.problem] : []),
  };
}

export const NO_PLAN: PeerPlan = { routes: [], neighbours: [], links: [], mtu: undefined, problems: [] };

const refused = (problem: string): PeerPlan => ({ ...NO_PLAN, problems: [problem] });

function usable(match: RouteMatch | NetlinkError | undefined): RouteMatch | undefined {
  return match && !(match instanceof NetlinkError) && match.type === RTN_UNICAST ? match : undefined;
}

const mtuOf = ({ mtu, oif }: RouteMatch, { links }: HostFacts): number | undefined =>
  mtu ?? (oif === undefined ? undefined : links.get(oif)?.mtu);

function directWay(
  own: ClusterNode,
  peer: ClusterNode,
  cidr: Cidr,
  { tunnel }: ClusterSettings,
  host: HostFacts,
  matches: Matches,
): Way | undefined {
  if (tunnel === "always") return undefined;
  const gateway = addressOf(peer, familyOf(cidr));
  const source = addressOf(own, familyOf(cidr));
  const match = gateway === undefined ? undefined : usable(matches.get(gateway));
  if (!gateway || !match || !isOnLink(match, host)) return undefined;
  // Else the peer, which knows only this address, sends by the tunnel: with strict rp_filter it would drop the rest.
  if (tunnel === "auto" && !(source && containsIp(match.dst, source))) return undefined;
  const prefsrc = source !== undefined && host.localAddresses.has(source) ? source : undefined;
  return { route: { dst: cidr, oif: match.oif!, gateway, prefsrc }, mtu: mtuOf(match, host) };
}

/** On a link where nodes reach each other's hardware addresses. A default route without a gateway is no such link. */
function isOnLink({ dst, oif, hasGateway }: RouteMatch, { links, tunnelIndex }: HostFacts): boolean {
  if (hasGateway || oif === undefined || oif === tunnelIndex || prefixLengthOf(dst) === 0) return false;
  return ((links.get(oif)?.flags ?? IFF_NOARP) & (IFF_NOARP | IFF_POINTOPOINT)) === 0;
}

function tunnelWay(
  own: ClusterNode,
  peer: ClusterNode,
  cidr: Cidr,
  { tunnel, vni }: ClusterSettings,
  host: HostFacts,
  matches: Matches,
): Way {
  if (tunnel === "never") {
    return { problem: `Node "${peer.name}" is on no link of this node, and there is no tunnel: ${cidr} gets no route` };
  }
  const underlay = underlayOf(own, peer);
  if (!underlay) {
    return { problem: `Node "${peer.name}" has no address of this node's families: ${cidr} gets no route` };
  }
  if (host.tunnelIndex === undefined) return { problem: `Node "${peer.name}" needs the tunnel: ${cidr} gets no route` };
  const { source, destination } = underlay;
  const mac = tunnelMac(peer);
  const gateway = tunnelGateway(cidr, mac);
  const ownCidr = own.podCidrs.find((each) => familyOf(each) === familyOf(cidr));
  const route = {
    dst: cidr,
    oif: host.tunnelIndex,
    gateway,
    prefsrc: ownCidr && tunnelAddress(ownCidr),
    encapsulation: { id: vni, destination, source: host.localAddresses.has(source) ? source : undefined },
  };
  const match = usable(matches.get(destination));
  const underlayMtu = match && mtuOf(match, host);
  return {
    route,
    neighbour: { address: gateway, mac },
    mtu: underlayMtu === undefined ? undefined : underlayMtu - tunnelOverhead(familyOf(destination)),
  };
}

/** Where no pod and no bridge has a route of its own, packets to this node's ranges end here. */
export const planOwnRanges = ({ podCidrs }: ClusterNode): PeerPlan => ({
  ...NO_PLAN,
  routes: podCidrs.map((dst) => ({ dst })),
});

/** The kernel's default for IPv6. */
const IPV6_METRIC = 1024;
/** A bridge may have a route to the whole range. */
const LAST_METRIC = 1_000_000_000;

export const leadsNowhere = ({ gateway }: PlannedRoute): boolean => gateway === undefined;

export function metricOf(route: PlannedRoute): number {
  if (leadsNowhere(route)) return LAST_METRIC;
  return familyOf(route.dst) === 4 ? 0 : IPV6_METRIC;
}

export function toRawRoute(planned: PlannedRoute): RawRoute {
  const { dst, oif, gateway, prefsrc, encapsulation } = planned;
  const isIpv4 = familyOf(dst) === 4;
  const metric = metricOf(planned);
  return {
    family: addressFamily(dst),
    dstLen: prefixLengthOf(dst),
    srcLen: 0,
    tos: 0,
    shortTable: RT_TABLE_MAIN,
    protocol: ROUTE_PROTOCOL,
    scope: RT_SCOPE_UNIVERSE,
    type: typeOf(planned),
    // The gateway's own address is part of the destination.
    flags: encapsulation && isIpv4 ? RTNH_F_ONLINK : 0,
    dst: ipOf(dst),
    oif,
    gateway,
    ...prefsrc === undefined ? {} : { prefsrc },
    ...metric === 0 ? {} : { priority: metric },
    ...encapsulation && encapsulate(encapsulation),
  };
}

const typeOf = (planned: PlannedRoute): number => leadsNowhere(planned) ? RTN_UNREACHABLE : RTN_UNICAST;

export function isAsPlanned(route: RawRoute, planned: PlannedRoute): boolean {
  const { oif, gateway, prefsrc, encapsulation } = planned;
  if (route.type !== typeOf(planned) || (route.priority ?? 0) !== metricOf(planned)) return false;
  if (leadsNowhere(planned)) return true;
  if (route.oif !== oif || route.gateway !== gateway || route.prefsrc !== prefsrc) return false;
  const present = encapsulationOf(route);
  return present?.id === encapsulation?.id && present?.source === encapsulation?.source &&
    present?.destination === encapsulation?.destination;
}

export function isSamePlan(a: PlannedRoute, b: PlannedRoute): boolean {
  return a.dst === b.dst && a.oif === b.oif && a.gateway === b.gateway && a.prefsrc === b.prefsrc &&
    a.encapsulation?.id === b.encapsulation?.id && a.encapsulation?.source === b.encapsulation?.source &&
    a.encapsulation?.destination === b.encapsulation?.destination;
}
