/**
 * Moves an interface into a VRF and out of it. The kernel sets it down and up, and removes its routes and IPv6 addresses. They are restored,
 * the routes in the other table.
 */
import { AF_INET6 } from "../../ffi/sys/uapi.ts";
import type { Cidr } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { executeAll, type Netlink, NETLINK_ROUTE, openEvents } from "../../ffi/netlink/socket.ts";
import * as address from "../../ffi/route/address.ts";
import { vrf as vrfKind } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import {
  IF_OPER_UNKNOWN,
  IF_OPER_UP,
  IFA_F_NODAD,
  IFA_F_NOPREFIXROUTE,
  IFA_F_PERMANENT,
  IFA_F_TENTATIVE,
  RT_SCOPE_LINK,
  RT_TABLE_LOCAL,
  RT_TABLE_MAIN,
  RTNLGRP_IPV6_IFADDR,
  RTPROT_BOOT,
  RTPROT_RA,
} from "../../ffi/route/uapi.ts";
import * as rawRoute from "../../ffi/route/raw_route.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { giveBackOrLog } from "../lib/links/container_refusal.ts";
import { awaitLinkOperational } from "../lib/links/configure_interface.ts";
import { runAllSteps } from "../lib/protocol/plugin.ts";
import { compareGatewayDependence, usesOnlyLink } from "../lib/links/routes.ts";
import { CniError, Code } from "../../spec/error.ts";

/** Also waits until the addresses are usable again. @throws {CniError} */
export function addToVrf(netns: Netns, device: link.Link, vrf: link.Link, undo: DisposableStack): void {
  const { index } = device;
  using events = netns.run<Netlink>(() => openEvents(NETLINK_ROUTE, RTNLGRP_IPV6_IFADDR));
  const saved = saveSettings(netns, index);
  undo.defer(() => detachAndRestore(netns, device, saved, {}, (step) => step()));
  link.set(netns.route, index, { master: vrf.index });
  restoreAddresses(netns, index, saved.addresses);
  // A link that is down has no routes.
  if (!link.isUp(device)) return;
  awaitFormerLinkState(netns, device, events);
  const tableMap = { [RT_TABLE_MAIN]: vrfTable(vrf) };
  for (const route of saved.routes) restoreRoute(netns, route, tableMap);
}

/**
 * Does not wait: usually the interface is removed next.
 *
 * @param log gets what the container itself prevented
 * @throws {Error} naming all other failures
 */
export function removeFromVrf(netns: Netns, device: link.Link, vrf: link.Link, log: (message: string) => void): void {
  const saved = saveSettings(netns, device.index);
  const tableMap = { [vrfTable(vrf)]: RT_TABLE_MAIN };
  detachAndRestore(netns, device, saved, tableMap, (step) => giveBackOrLog(log, step));
}

interface SavedSettings {
  readonly addresses: readonly address.InterfaceAddress[];
  readonly routes: readonly rawRoute.RawRoute[];
}

/** New tables of routes, by their old tables. */
type TableMap = Readonly<Record<number, number>>;

function detachAndRestore(
  netns: Netns,
  device: link.Link,
  saved: SavedSettings,
  tableMap: TableMap,
  giveBack: (step: () => void) => void,
): void {
  const detach = () => {
    link.set(netns.route, device.index, { master: 0 });
    return true;
  };
  // ENODEV: the container removed the link.
  if (!ignoreErrors(["ENODEV"], detach)) return;
  runAllSteps(
    () => giveBack(() => restoreAddresses(netns, device.index, saved.addresses)),
    ...saved.routes.map((route) => () => giveBack(() => restoreRoute(netns, route, tableMap))),
  );
}

function awaitFormerLinkState(netns: Netns, device: link.Link, events: Netlink): void {
  const { index, operstate } = device;
  // The state of a link that just lost its carrier follows up to a second later.
  if (!link.hasCarrier(device)) return;
  if (operstate === IF_OPER_UP) awaitLinkOperational(netns, link.get(netns.route, index));
  // Some kinds of links stay in state unknown.
  if (operstate !== IF_OPER_UP && operstate !== IF_OPER_UNKNOWN) return;
  const tentative = listIpv6Addresses(netns, index).filter(({ flags }) => flags & IFA_F_TENTATIVE).map((entry) =>
    entry.address
  );
  address.awaitDad(netns.route, events, index, tentative, duplicateAddressError(device));
}

function vrfTable(vrf: link.Link): number {
  return vrfKind.of(vrf)?.table ?? RT_TABLE_MAIN;
}

/** The addresses and routes that a link loses and nobody else restores. */
function saveSettings(netns: Netns, index: number): SavedSettings {
  const isPersistent = ({ protocol }: rawRoute.RawRoute) => protocol >= RTPROT_BOOT && protocol !== RTPROT_RA;
  return {
    addresses: listIpv6Addresses(netns, index).filter(({ flags }) => flags & IFA_F_PERMANENT),
    routes: rawRoute.list(netns.route)
      .filter((route) =>
        usesOnlyLink(route, index) && isPersistent(route) && rawRoute.tableOf(route) !== RT_TABLE_LOCAL
      )
      .toSorted(compareGatewayDependence),
  };
}

/** The kernel makes link-local addresses anew by itself. */
function listIpv6Addresses(netns: Netns, index: number): address.InterfaceAddress[] {
  return address.list(netns.route, { index, family: AF_INET6 }).filter(({ scope }) => scope !== RT_SCOPE_LINK);
}

/** Adds missing addresses. Those that were not tentative need no second duplicate address detection. */
function restoreAddresses(netns: Netns, index: number, wanted: readonly address.InterfaceAddress[]): void {
  const present = new Set<Cidr>(listIpv6Addresses(netns, index).map((entry) => entry.address));
  const missing = wanted.filter((entry) => !present.has(entry.address)).map(({ address: cidr, flags }) =>
    address.addRequest(index, cidr, {
      noDad: (flags & IFA_F_NODAD) !== 0 || (flags & IFA_F_TENTATIVE) === 0,
      noPrefixRoute: (flags & IFA_F_NOPREFIXROUTE) !== 0,
    })
  );
  if (missing.length > 0) executeAll(netns.route, missing);
}

function restoreRoute(netns: Netns, route: rawRoute.RawRoute, tableMap: TableMap): void {
  const table = rawRoute.tableOf(route);
  ignoreErrors(["EEXIST"], () => rawRoute.append(netns.route, rawRoute.withTable(route, tableMap[table] ?? table)));
}

const duplicateAddressError = ({ name }: link.Link) => (duplicate: Cidr) =>
  new CniError(Code.Internal, `Cannot use address ${duplicate} on "${name}": another host of the network has it`);
