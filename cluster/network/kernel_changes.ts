/** What other programs and the kernel itself change, as far as it may concern the cluster's network. */
import { type Cidr, containsIp, familyOf, type Ip, ipOf, isHostPrefix, type Mac } from "../../ffi/address.ts";
import { readMessage } from "../../ffi/netlink/message.ts";
import { openMonitor } from "../../ffi/netlink/monitor.ts";
import { type KernelMessage, NETLINK_ROUTE } from "../../ffi/netlink/socket.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { findOwnPid, isChangeOf, openRulesetMonitor } from "../../ffi/nft/ruleset_monitor.ts";
import { addressMessage } from "../../ffi/route/address.ts";
import { type Link, linkMessage } from "../../ffi/route/link.ts";
import { neighbourMessage } from "../../ffi/route/neighbour.ts";
import { destinationOf, type RawRoute, rawRouteMessage, tableOf } from "../../ffi/route/raw_route.ts";
import {
  IFF_RUNNING,
  IFF_UP,
  NUD_PERMANENT,
  RT_TABLE_LOCAL,
  RTM_DELADDR,
  RTM_DELLINK,
  RTM_DELNEIGH,
  RTM_DELROUTE,
  RTM_F_CLONED,
  RTM_NEWADDR,
  RTM_NEWLINK,
  RTM_NEWNEIGH,
  RTM_NEWROUTE,
  RTNLGRP_IPV4_IFADDR,
  RTNLGRP_IPV4_ROUTE,
  RTNLGRP_IPV6_IFADDR,
  RTNLGRP_IPV6_ROUTE,
  RTNLGRP_LINK,
  RTNLGRP_NEIGH,
} from "../../ffi/route/uapi.ts";
import { CLUSTER_TABLE } from "../../plugins/lib/ruleset/foreign_tables.ts";
import { Garbage } from "../garbage.ts";
import { isAsPlanned, leadsNowhere, type PlannedRoute } from "./plan.ts";
import { ROUTE_PROTOCOL, TUNNEL_LINK } from "./settings.ts";

/** What the kernel should have, to tell changes from what is right. */
export interface WatchedState {
  readonly tunnelIndex: number | undefined;
  readonly links: ReadonlyMap<number, Link>;
  /** By these, packets leave for nodes. */
  readonly usedLinks: ReadonlySet<number>;
  /** Of other programs' routes where this one's should be. The kernel does not tell of routes that go with these. */
  readonly obstacleLinks: ReadonlySet<number>;
  /** This node's own, as far as they are on its links. */
  readonly localAddresses: ReadonlySet<Ip>;
  readonly ownAddresses: ReadonlySet<Ip>;
  readonly ownCidrs: readonly Cidr[];
  readonly nodeAddresses: ReadonlyMap<Ip, unknown>;
  readonly routes: ReadonlyMap<Cidr, PlannedRoute>;
  readonly neighbours: ReadonlyMap<Ip, { readonly mac: Mac }>;
}

export interface ChangedKinds {
  readonly hasLinksOrRoutes: boolean;
  readonly hasRules: boolean;
}

const BUFFER_BYTES = 16 << 20;
const MESSAGES_OF_A_MEGABYTE = 2000;

export class KernelChanges implements Disposable {
  readonly #pid: number;
  readonly #host: Pick<Netns, "route">;
  readonly #route;
  readonly #ruleset;

  /** @param host whose sockets make the changes of this program */
  constructor(host: Pick<Netns, "route" | "nft">) {
    using resources = new DisposableStack();
    // In a process namespace, commits have another number than `process.pid`.
    this.#host = host;
    this.#pid = findOwnPid(host.nft);
    const groups = [
      RTNLGRP_LINK,
      RTNLGRP_NEIGH,
      RTNLGRP_IPV4_IFADDR,
      RTNLGRP_IPV4_ROUTE,
      RTNLGRP_IPV6_IFADDR,
      RTNLGRP_IPV6_ROUTE,
    ];
    this.#route = resources.use(openMonitor(NETLINK_ROUTE, groups, BUFFER_BYTES));
    this.#ruleset = openRulesetMonitor(BUFFER_BYTES, isChangeOf([CLUSTER_TABLE]), () => host.nft.portId!());
    resources.move();
  }

  get fds(): readonly number[] {
    return [this.#route.fd, this.#ruleset.fd];
  }

  read(state: WatchedState): ChangedKinds {
    let hasLinksOrRoutes = false;
    let hasRules = false;
    const ownPortId = this.#host.route.portId!();
    const garbage = new Garbage(MESSAGES_OF_A_MEGABYTE);
    const isRouteComplete = this.#route.read((message) => {
      garbage.step();
      if (message.portId !== ownPortId) hasLinksOrRoutes ||= matters(message, state);
    });
    const isRulesetComplete = this.#ruleset.read(({ committer, changes }) => {
      hasRules ||= committer.pid !== this.#pid && changes.length > 0;
    });
    return { hasLinksOrRoutes: hasLinksOrRoutes || !isRouteComplete, hasRules: hasRules || !isRulesetComplete };
  }

  [Symbol.dispose](): void {
    this.#route[Symbol.dispose]();
    this.#ruleset[Symbol.dispose]();
  }
}

function matters({ type, payload }: KernelMessage, state: WatchedState): boolean {
  switch (type) {
    case RTM_NEWLINK:
    case RTM_DELLINK:
      return linkMatters(type, readMessage(linkMessage, payload), state);
    case RTM_NEWADDR:
    case RTM_DELADDR:
      return addressMatters(type, readMessage(addressMessage, payload), state);
    case RTM_NEWROUTE:
    case RTM_DELROUTE:
      return routeMatters(type, readMessage(rawRouteMessage, payload), state);
    case RTM_NEWNEIGH:
    case RTM_DELNEIGH: {
      const { index, dst, mac, state: nud } = readMessage(neighbourMessage, payload);
      if (index !== state.tunnelIndex || dst === undefined) return false;
      const wanted = state.neighbours.get(dst)?.mac;
      return type === RTM_DELNEIGH ? wanted !== undefined : wanted !== mac || nud !== NUD_PERMANENT;
    }
    default:
      return false;
  }
}

function linkMatters(type: number, link: Link, state: WatchedState): boolean {
  const { links, usedLinks, obstacleLinks, tunnelIndex } = state;
  const known = links.get(link.index);
  if (!known || !(usedLinks.has(link.index) || obstacleLinks.has(link.index) || link.index === tunnelIndex)) {
    return link.name === TUNNEL_LINK && link.index !== tunnelIndex;
  }
  const isChanged = ((known.flags ^ link.flags) & (IFF_UP | IFF_RUNNING)) !== 0 || known.mtu !== link.mtu ||
    known.name !== link.name || link.index === tunnelIndex && known.mac !== link.mac;
  return type === RTM_DELLINK || isChanged;
}

function addressMatters(
  type: number,
  { index, local, address }: { index: number; local?: Ip; address?: Ip },
  { tunnelIndex, obstacleLinks, ownAddresses, localAddresses }: WatchedState,
): boolean {
  const ip = local ?? address;
  if (ip === undefined) return false;
  if (type === RTM_DELADDR) return index === tunnelIndex || obstacleLinks.has(index) || ownAddresses.has(ip);
  return ownAddresses.has(ip) && !localAddresses.has(ip);
}

function routeMatters(type: number, route: RawRoute, state: WatchedState): boolean {
  if (route.flags & RTM_F_CLONED || tableOf(route) === RT_TABLE_LOCAL) return false;
  const dst = destinationOf(route);
  const wanted = state.routes.get(dst);
  if (route.protocol === ROUTE_PROTOCOL) {
    return type === RTM_DELROUTE ? wanted !== undefined : !wanted || !isAsPlanned(route, wanted);
  }
  if (wanted && !leadsNowhere(wanted)) return true;
  // The first node may come later, and may send by that link.
  if (route.dstLen === 0) return true;
  // Each link has one to its own neighbours, which no node's address is among.
  if (dst.startsWith("fe80:")) return false;
  // Routes to pods of this node come and go with them, and with their bridge.
  if (state.ownCidrs.some((cidr) => familyOf(cidr) === familyOf(dst) && containsIp(cidr, ipOf(dst)))) return false;
  if (isHostPrefix(dst)) return state.nodeAddresses.has(ipOf(dst));
  for (const ip of state.nodeAddresses.keys()) if (familyOf(ip) === familyOf(dst) && containsIp(dst, ip)) return true;
  return false;
}
