/**
 * Network interfaces, which the kernel calls links.
 *
 * Used as a namespace: `import * as link from "../ffi/route/link.ts"`.
 *
 * @see linux/if_link.h, net/core/rtnetlink.c
 * @module
 */
import { attrs } from "../netlink/attrs.ts";
import { bytes, cstr, i32, macCodec, struct, u16, u32, u8 } from "../netlink/codec.ts";
import { NetlinkError, withRequestPurpose } from "../netlink/error.ts";
import {
  message,
  type MessageIn,
  type MessageOut,
  NLM_F_CREATE,
  NLM_F_EXCL,
  type Operation,
} from "../netlink/message.ts";
import {
  dump,
  execute,
  executeAll,
  type Netlink,
  type NetlinkRequest,
  query,
  queryAll,
  receiveEvents,
  request,
} from "../netlink/socket.ts";
import { ENODEV, ERESTART, ETIMEDOUT } from "../sys/errno.ts";
import {
  ALTIFNAMSIZ,
  IF_OPER_UP,
  IFF_UP,
  IFLA_ADDRESS,
  IFLA_ALT_IFNAME,
  IFLA_EXT_MASK,
  IFLA_GROUP,
  IFLA_IFALIAS,
  IFLA_IFNAME,
  IFLA_INFO_DATA,
  IFLA_INFO_KIND,
  IFLA_INFO_SLAVE_DATA,
  IFLA_INFO_SLAVE_KIND,
  IFLA_LINK,
  IFLA_LINK_NETNSID,
  IFLA_LINKINFO,
  IFLA_MASTER,
  IFLA_MTU,
  IFLA_NET_NS_FD,
  IFLA_OPERSTATE,
  IFLA_PARENT_DEV_NAME,
  IFLA_PERM_ADDRESS,
  IFLA_PROMISCUITY,
  IFLA_PROP_LIST,
  IFLA_TARGET_NETNSID,
  IFLA_TXQLEN,
  RTEXT_FILTER_SKIP_STATS,
  RTM_DELLINK,
  RTM_GETLINK,
  RTM_NEWLINK,
  RTM_NEWLINKPROP,
} from "./uapi.ts";
import { IFNAMSIZ } from "../sys/uapi.ts";

/** struct ifinfomsg */
export const ifinfomsg = struct({ family: u8, pad1: u8, type: u16, index: i32, flags: u32, change: u32 });

/** A link, as in RTM_NEWLINK and its relatives. */
export const linkMessage = message("link", ifinfomsg, () => ({
  mac: [IFLA_ADDRESS, macCodec],
  name: [IFLA_IFNAME, cstr],
  /** Largest packet, in bytes. */
  mtu: [IFLA_MTU, u32],
  /** Index of the lower device, or of a veth's peer. */
  linkIndex: [IFLA_LINK, u32],
  /** Namespace of `linkIndex`, if it is another one, as a number local to this namespace. */
  linkNetnsId: [IFLA_LINK_NETNSID, i32],
  /** Of a question: the namespace that is asked about, as such a number. */
  targetNetnsId: [IFLA_TARGET_NETNSID, i32],
  /** Index of the bridge or VRF that this link is a port of. */
  master: [IFLA_MASTER, u32],
  txQLen: [IFLA_TXQLEN, u32],
  operstate: [IFLA_OPERSTATE, u8],
  /** How many have asked for promiscuous mode. */
  promiscuity: [IFLA_PROMISCUITY, u32],
  alias: [IFLA_IFALIAS, cstr],
  group: [IFLA_GROUP, u32],
  /** Where to create the link, or to look for its lower device: an open namespace. */
  netnsFd: [IFLA_NET_NS_FD, u32],
  altName: [IFLA_ALT_IFNAME, cstr],
  /** What the hardware is born with. Kernels before 5.6 do not tell. */
  permanentMac: [IFLA_PERM_ADDRESS, macCodec],
  /** The device of sysfs that it is the interface of: `0000:00:1f.6`. Kernels before 5.14 do not tell. */
  parentDevice: [IFLA_PARENT_DEV_NAME, cstr],
  extMask: [IFLA_EXT_MASK, u32],
  info: [
    IFLA_LINKINFO,
    attrs(() => ({
      kind: [IFLA_INFO_KIND, cstr],
      data: [IFLA_INFO_DATA, bytes],
      portKind: [IFLA_INFO_SLAVE_KIND, cstr],
      portData: [IFLA_INFO_SLAVE_DATA, bytes],
    })),
  ],
}));

/** A link as the kernel reports it. */
export type Link = MessageOut<typeof linkMessage>;
/** A link to create, or the changes to one. */
export type LinkIn = MessageIn<typeof linkMessage>;

const linkPropertyMessage = message("link", ifinfomsg, () => ({
  name: [IFLA_IFNAME, cstr],
  properties: [IFLA_PROP_LIST, attrs(() => ({ altName: [IFLA_ALT_IFNAME, cstr] }))],
}));
const NEW_PROPERTY: Operation<typeof linkPropertyMessage> = {
  name: "RTM_NEWLINKPROP",
  type: RTM_NEWLINKPROP,
  spec: linkPropertyMessage,
};

type LinkOp = Operation<typeof linkMessage>;
const NEW: LinkOp = { name: "RTM_NEWLINK", type: RTM_NEWLINK, spec: linkMessage };
const GET: LinkOp = { name: "RTM_GETLINK", type: RTM_GETLINK, spec: linkMessage };
const DEL: LinkOp = { name: "RTM_DELLINK", type: RTM_DELLINK, spec: linkMessage };

/** @throws {NetlinkError} `ENODEV` for a name that no link can have, which the kernel has other words for */
function selector(key: string | number): LinkIn {
  if (typeof key === "number") return { index: key };
  const { length } = new TextEncoder().encode(key);
  if (length >= ALTIFNAMSIZ || key.includes("\0")) throw new NetlinkError({ request: GET.name, errno: ENODEV });
  return length < IFNAMSIZ ? { name: key } : { altName: key };
}

/** Creates a link. @throws {NetlinkError} `EEXIST` if the name is taken */
export function add(nl: Netlink, spec: LinkIn): void {
  withRequestPurpose(() => `add link "${spec.name}"`, () => execute(nl, NEW, spec, NLM_F_CREATE | NLM_F_EXCL));
}

/** The link of this name or index. @throws {NetlinkError} `ENODEV` if there is none */
export function get(nl: Netlink, key: string | number): Link {
  return withRequestPurpose(
    () => `find link "${key}"`,
    () => query(nl, GET, { ...selector(key), extMask: RTEXT_FILTER_SKIP_STATS }),
  );
}

/** The links of these names or indices, asked for at once. @throws {NetlinkError} `ENODEV` if one is missing */
export function getAll(nl: Netlink, keys: readonly (string | number)[]): Link[] {
  return withRequestPurpose(
    () => `find links ${keys.map((key) => `"${key}"`).join(", ")}`,
    () => queryAll(nl, GET, keys.map((key) => ({ ...selector(key), extMask: RTEXT_FILTER_SKIP_STATS }))),
  );
}

/** The link of this name or index, or `undefined`. @throws {NetlinkError} for every reason but that there is none */
export function find(nl: Netlink, key: string | number): Link | undefined {
  try {
    return get(nl, key);
  } catch (error) {
    if (error instanceof NetlinkError && error.code === "ENODEV") return undefined;
    throw error;
  }
}

/** The links of the namespace, or the ports of the bridge or VRF with index `master`. @throws {NetlinkError} */
export function list(nl: Netlink, { master }: { readonly master?: number } = {}): Link[] {
  const filter = master === undefined ? {} : { master };
  const links = withRequestPurpose(
    () => "list links",
    () => dump(nl, GET, { ...filter, extMask: RTEXT_FILTER_SKIP_STATS }),
  );
  // Kernels before 4.6 do not filter.
  return master === undefined ? links : links.filter((entry) => entry.master === master);
}

/** Changes a link. @throws {NetlinkError} */
export function set(nl: Netlink, key: string | number, change: LinkIn): void {
  withRequestPurpose(() => `change link "${key}"`, () => execute(nl, NEW, { ...change, ...selector(key) }));
}

/**
 * Gives a link further names, none of which another link of the namespace has.
 *
 * @throws {NetlinkError} `EEXIST` if another has one, and `index` tells which; `EOPNOTSUPP` of kernels before 5.5
 */
export function addAltNames(nl: Netlink, name: string, altNames: readonly string[]): void {
  withRequestPurpose(
    () => `give link "${name}" the names ${altNames.map((altName) => `"${altName}"`).join(", ")}`,
    () => executeAll(nl, altNames.map((altName) => request(NEW_PROPERTY, { name, properties: { altName } }))),
  );
}

/** True if the namespace of the link's other end has come to its end, so that the kernel is about to remove both. @throws {NetlinkError} */
export function isPeerNetnsGone(nl: Netlink, { linkIndex, linkNetnsId }: Link): boolean {
  if (linkIndex === undefined || linkNetnsId === undefined) return false;
  try {
    query(nl, GET, { index: linkIndex, targetNetnsId: linkNetnsId, extMask: RTEXT_FILTER_SKIP_STATS });
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
    // Of another error, such as a namespace of another user's, nothing is known.
    return error.code === "EINVAL";
  }
  return false;
}

/** The request that sets a link up, to be sent with others. */
export function setUpRequest(index: number): NetlinkRequest {
  return request(NEW, { index, flags: IFF_UP, change: IFF_UP });
}

/** Sets a link up. @throws {NetlinkError} */
export function setUp(nl: Netlink, index: number): void {
  withRequestPurpose(() => `set link ${index} up`, () => executeAll(nl, [setUpRequest(index)]));
}

/** Removes a link. @throws {NetlinkError} `ENODEV` if there is none */
export function remove(nl: Netlink, key: string | number): void {
  withRequestPurpose(() => `remove link "${key}"`, () => execute(nl, DEL, selector(key)));
}

/** Removes the links of a group. @throws {NetlinkError} `ENODEV` if there are none */
export function removeGroup(nl: Netlink, group: number): void {
  withRequestPurpose(() => `remove the links of group ${group}`, () => execute(nl, DEL, { group }));
}

/** Each time, links have gone on their own that were there when they were listed. */
const REMOVAL_ATTEMPTS = 20;

/**
 * Removes the links that `choose` picks among all of the namespace. The kernel waits some 15 ms whenever links are removed, however many
 * they are, so they are put into a group of their own and removed by its number.
 *
 * @param select asked again if links went away meanwhile
 * @throws {NetlinkError}
 */
export function removeSelected(nl: Netlink, select: (all: readonly Link[]) => readonly Link[]): void {
  for (let attempt = 1;; attempt++) {
    const all = list(nl);
    const selected = select(all);
    if (selected.length === 0) return;
    const group = unusedGroup(all);
    const allExisted = setGroup(nl, selected, group);
    succeedsIgnoring(() =>
      withRequestPurpose(() => `remove ${selected.length} links`, () => execute(nl, DEL, { group }))
    );
    if (allExisted) return;
    if (attempt === REMOVAL_ATTEMPTS) {
      throw new NetlinkError({ request: DEL.name, errno: ERESTART, extack: "Links kept going away" });
    }
  }
}

/** @returns false if some of them were gone, or the answers are; the others are in the group all the same */
function setGroup(nl: Netlink, links: readonly Link[], group: number): boolean {
  const requests = links.map(({ index }) => request(NEW, { index, group }));
  return succeedsIgnoring(
    () => withRequestPurpose(() => `put ${links.length} links into group ${group}`, () => executeAll(nl, requests)),
    ["ENODEV", "ENOBUFS"],
  );
}

/** False if it fails because there is no such link, or for what else is told. */
function succeedsIgnoring(call: () => void, expected: readonly string[] = ["ENODEV"]): boolean {
  try {
    call();
    return true;
  } catch (error) {
    if (error instanceof NetlinkError && expected.includes(error.code)) return false;
    throw error;
  }
}

/** Links are in group 0 unless somebody puts them into another. */
function unusedGroup(all: readonly Link[]): number {
  const used = new Set(all.map((entry) => entry.group));
  for (;;) {
    const [group = 0] = crypto.getRandomValues(new Uint32Array(1));
    if (group !== 0 && !used.has(group)) return group;
  }
}

/** True if the link is set up. */
export function isUp(link: Link): boolean {
  return (link.flags & IFF_UP) !== 0;
}

/** True if the link is set up and has a carrier, as far as it knows of one. */
export function isRunning(link: Link): boolean {
  return (link.flags & IFF_RUNNING) !== 0;
}

/** The operational state in the kernel's word (RFC 2863): `lowerlayerdown`. */
export function operationalState({ operstate = 0 }: Link): string {
  const states = ["unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up"];
  return states[operstate] ?? String(operstate);
}

/** linux/if.h */
const IFF_RUNNING = 0x40;

/** How long a new link may take until it can carry frames. */
const OPERATIONAL_MS = 5000;

/**
 * Waits until a link can carry frames: both ends of a veth pair are up, and a bridge forwards what comes in.
 *
 * @param device as it is now
 * Recent kernels settle this while they answer; older ones say so in an event, which is waited for.
 *
 * @param openEvents opens a socket that listens to RTNLGRP_LINK in the same namespace as `nl`
 * @throws {NetlinkError} `ETIMEDOUT` naming the state it is in
 */
export function awaitOperational(nl: Netlink, device: Link, openEvents: () => Netlink): Link {
  if (device.operstate === IF_OPER_UP) return device;
  using events = openEvents();
  const deadline = performance.now() + OPERATIONAL_MS;
  for (;;) {
    const current = get(nl, device.index);
    if (current.operstate === IF_OPER_UP) return current;
    if (performance.now() > deadline || !receiveEvents(events, NEW)) {
      throw new NetlinkError(
        { request: "wait", errno: ETIMEDOUT, extack: `operational state ${operationalState(current)}` },
        `wait for "${device.name}" to come up`,
      );
    }
  }
}

/**
 * Waits, for some seconds at most, until `look` finds something among the links, which is asked whenever one appears or changes.
 *
 * @param openEvents as for {@linkcode awaitOperational}
 * @returns `undefined` if the time is over
 */
export function awaitLink(
  nl: Netlink,
  select: (all: readonly Link[]) => Link | undefined,
  openEvents: () => Netlink,
): Link | undefined {
  using events = openEvents();
  for (const deadline = performance.now() + OPERATIONAL_MS;;) {
    const selected = select(list(nl));
    if (selected || performance.now() > deadline || !receiveEvents(events, NEW)) return selected;
  }
}
