import { type Cidr, containsIp, type Ip, ipOf, parseCidr } from "../../ffi/address.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import * as address from "../../ffi/route/address.ts";
import * as link from "../../ffi/route/link.ts";
import { listLinkPackets } from "../../ffi/route/link_statistics.ts";
import * as route from "../../ffi/route/route.ts";
import { RT_TABLE_LOCAL, RT_TABLE_MAIN } from "../../ffi/route/uapi.ts";
import { AF_INET, AF_INET6 } from "../../ffi/sys/uapi.ts";
import type { ShownLink, ShownRoute, Uplink } from "./node_tree.ts";

/** Links, addresses and routes of one namespace, each listed once. */
export interface NamespaceLinks {
  readonly links: ReadonlyMap<number, link.Link>;
  show(shown: link.Link): ShownLink;
  routesOf(index: number): ShownRoute[];
}

export function listNamespaceLinks(nl: Netlink): NamespaceLinks {
  const links = new Map(link.list(nl).map((entry) => [entry.index, entry]));
  const addresses = Map.groupBy(address.list(nl), ({ index }) => index);
  const packets = listLinkPackets(nl);
  const routes = Map.groupBy([AF_INET, AF_INET6].flatMap((family) => route.list(nl, family)), ({ oif }) => oif);
  return {
    links,
    show(shown) {
      const { index, name = "", info, mtu, mac } = shown;
      const counted = packets.get(index);
      return {
        name,
        ...info?.kind !== undefined && { kind: info.kind },
        state: link.operationalState(shown),
        ...mtu !== undefined && { mtu },
        ...mac !== undefined && { mac },
        addresses: (addresses.get(index) ?? []).map(({ address }) => address).filter((cidr) => !isLinkLocal(cidr)),
        ...counted && { packets: counted },
      };
    },
    routesOf: (index) => (routes.get(index) ?? []).filter(isShown).map(showRoute),
  };
}

const LINK_LOCAL = parseCidr("fe80::/10");

function isLinkLocal(cidr: Cidr): boolean {
  return containsIp(LINK_LOCAL, ipOf(cidr));
}

function isShown({ dst, table }: route.UnicastRoute): boolean {
  return table !== RT_TABLE_LOCAL && !isLinkLocal(dst);
}

function showRoute({ dst, gateway, table, priority, mtu }: route.UnicastRoute): ShownRoute {
  return {
    dst,
    ...gateway !== undefined && { gateway },
    ...table !== undefined && table !== RT_TABLE_MAIN && { table },
    ...priority !== undefined && { metric: priority },
    ...mtu !== undefined && { mtu },
  };
}

export function findUplinks(host: NamespaceLinks): Uplink[] {
  return [...host.links.values()].flatMap((entry) => {
    const defaults = host.routesOf(entry.index).filter(({ dst, table }) => dst.endsWith("/0") && table === undefined);
    if (defaults.length === 0) return [];
    const gateways = new Set<Ip>(defaults.flatMap(({ gateway }) => gateway ?? []));
    return [{ ...host.show(entry), gateways: [...gateways] }];
  }).sort(byName);
}

export function byName(a: ShownLink, b: ShownLink): number {
  return a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
}
