/**
 * Taking an interface into a VRF and out of it. The kernel sets it down and up on the way, by which it loses routes and, unless told
 * otherwise, IPv6 addresses: they are given back, and what was in the main table is in the VRF's, or the other way round.
 *
 * @module
 */
import type { Cidr } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns.ts";
import { executeAll, type Netlink, NETLINK_ROUTE, openNetlink } from "../../ffi/netlink/socket.ts";
import * as address from "../../ffi/route/address.ts";
import { vrf as vrfKind } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import {
  AF_INET6,
  IF_OPER_UNKNOWN,
  IF_OPER_UP,
  IFA_F_NOPREFIXROUTE,
  IFA_F_PERMANENT,
  IFA_F_TENTATIVE,
  RT_SCOPE_UNIVERSE,
  RT_TABLE_LOCAL,
  RT_TABLE_MAIN,
  RTNLGRP_IPV6_IFADDR,
  RTPROT_BOOT,
  RTPROT_RA,
} from "../../ffi/route/uapi.ts";
import * as whole from "../../ffi/route/raw_route.ts";
import { unless } from "../../ffi/sys/error.ts";
import { awaitOperational } from "../lib/links/interface.ts";
import { cleanUp } from "../lib/protocol/plugin.ts";
import { byDependence, leavesBy } from "../lib/links/routes.ts";
import { CniError, Code } from "../../spec/error.ts";

/** Makes `device` a port of the VRF. When it returns, addresses that could be used before can be used. @throws {CniError} @throws {NetlinkError} */
export function enter(netns: Netns, device: link.Link, vrf: link.Link, undo: DisposableStack): void {
  const { index } = device;
  using events = netns.run<Netlink>(() => openNetlink(NETLINK_ROUTE, [RTNLGRP_IPV6_IFADDR]));
  const had = recall(netns, index);
  undo.defer(() => release(netns, device, had, {}));
  link.set(netns.route, index, { master: vrf.index });
  // One that is down has lost nothing, and has nothing to wait for.
  if (!link.isUp(device)) return;
  restoreAddresses(netns, index, had.addresses);
  awaitFormerState(netns, device, events);
  const moved = { [RT_TABLE_MAIN]: tableOf(vrf) };
  for (const each of had.routes) restoreRoute(netns, each, moved);
}

/** Takes `device` out of the VRF. Nothing is waited for: mostly it is removed next. @throws {Error} naming what could not be given back */
export function leave(netns: Netns, device: link.Link, vrf: link.Link): void {
  release(netns, device, recall(netns, device.index), { [tableOf(vrf)]: RT_TABLE_MAIN });
}

/** What a link had. */
interface Belongings {
  readonly addresses: readonly address.Address[];
  readonly routes: readonly whole.WholeRoute[];
}

/** The tables that routes go to, by those that they were in; others stay. */
type Moved = Readonly<Record<number, number>>;

function release(netns: Netns, device: link.Link, had: Belongings, moved: Moved): void {
  link.set(netns.route, device.index, { master: 0 });
  if (!link.isUp(device)) return;
  cleanUp(
    () => restoreAddresses(netns, device.index, had.addresses),
    ...had.routes.map((each) => () => restoreRoute(netns, each, moved)),
  );
}

/** Waits until the link carries frames and has its addresses, if it was so before. */
function awaitFormerState(netns: Netns, device: link.Link, events: Netlink): void {
  const { index, operstate } = device;
  if (operstate === IF_OPER_UP) awaitOperational(netns, link.get(netns.route, index));
  // Some kinds of links never say in what state they are.
  if (operstate !== IF_OPER_UP && operstate !== IF_OPER_UNKNOWN) return;
  const tentative = listSix(netns, index).filter(({ flags }) => flags & IFA_F_TENTATIVE).map((each) => each.address);
  address.awaitUsable(netns.route, events, index, tentative, describeDuplicate(device));
}

function tableOf(vrf: link.Link): number {
  return vrfKind.of(vrf)?.table ?? RT_TABLE_MAIN;
}

/** What a link loses when it is set down: those of its addresses and routes that nobody else gives it anew. */
function recall(netns: Netns, index: number): Belongings {
  const isLasting = ({ protocol }: whole.WholeRoute) => protocol >= RTPROT_BOOT && protocol !== RTPROT_RA;
  return {
    addresses: listSix(netns, index).filter(({ flags }) => flags & IFA_F_PERMANENT),
    routes: whole.list(netns.route)
      .filter((each) => leavesBy(each, index) && isLasting(each) && whole.tableOf(each) !== RT_TABLE_LOCAL)
      .toSorted(byDependence),
  };
}

/** The IPv6 addresses that the kernel has not made itself. */
function listSix(netns: Netns, index: number): address.Address[] {
  return address.list(netns.route, { index, family: AF_INET6 }).filter(({ scope }) => scope === RT_SCOPE_UNIVERSE);
}

/** Puts back what is missing; that nobody else has it is known from before. */
function restoreAddresses(netns: Netns, index: number, wanted: readonly address.Address[]): void {
  const present = new Set<Cidr>(listSix(netns, index).map((each) => each.address));
  const missing = wanted.filter((each) => !present.has(each.address)).map(({ address: own, flags }) =>
    address.addRequest(index, own, { withoutDad: true, withoutRoute: (flags & IFA_F_NOPREFIXROUTE) !== 0 })
  );
  if (missing.length > 0) executeAll(netns.route, missing);
}

/** Puts a route back where it was, or where such routes go. */
function restoreRoute(netns: Netns, route: whole.WholeRoute, moved: Moved): void {
  const table = whole.tableOf(route);
  unless(["EEXIST"], () => whole.append(netns.route, whole.inTable(route, moved[table] ?? table)));
}

const describeDuplicate = ({ name }: link.Link) => (duplicate: Cidr) =>
  new CniError(Code.Internal, `Cannot use address ${duplicate} on "${name}": another host of the network has it`);
