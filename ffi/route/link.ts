/** Links: network interfaces, in the kernel's word. @see linux/if_link.h @module */
import { attrs } from "../netlink/attrs.ts";
import { bytes, cstr, i32, macCodec, struct, u16, u32, u8 } from "../netlink/codec.ts";
import { NetlinkError } from "../netlink/error.ts";
import { message, type MessageIn, type MessageOut, NLM_F_CREATE, NLM_F_EXCL } from "../netlink/message.ts";
import {
  dump,
  execute,
  executeAll,
  type Netlink,
  type NetlinkRequest,
  query,
  queryAll,
  queryAllIfPresent,
  receiveEvents,
  request,
} from "../netlink/socket.ts";
import { ENODEV, ERESTART, ETIMEDOUT } from "../sys/errno.ts";
import { ignoreErrors, withPurpose } from "../sys/error.ts";
import { IFNAMSIZ } from "../sys/uapi.ts";
import { rtnetlinkOperations } from "./operations.ts";
import * as uapi from "./uapi.ts";

export const ifinfomsg = struct({ family: u8, pad1: u8, type: u16, index: i32, flags: u32, change: u32 });

export const linkMessage = message("link", ifinfomsg, () => ({
  mac: [uapi.IFLA_ADDRESS, macCodec],
  name: [uapi.IFLA_IFNAME, cstr],
  mtu: [uapi.IFLA_MTU, u32],
  linkIndex: [uapi.IFLA_LINK, u32],
  /** This namespace's number for that of `linkIndex`, if different. */
  linkNetnsId: [uapi.IFLA_LINK_NETNSID, i32],
  /** In queries: this namespace's number for the one in question. */
  targetNetnsId: [uapi.IFLA_TARGET_NETNSID, i32],
  master: [uapi.IFLA_MASTER, u32],
  txQLen: [uapi.IFLA_TXQLEN, u32],
  operstate: [uapi.IFLA_OPERSTATE, u8],
  promiscuity: [uapi.IFLA_PROMISCUITY, u32],
  txQueues: [uapi.IFLA_NUM_TX_QUEUES, u32],
  rxQueues: [uapi.IFLA_NUM_RX_QUEUES, u32],
  alias: [uapi.IFLA_IFALIAS, cstr],
  group: [uapi.IFLA_GROUP, u32],
  /** Where to create the link or find its lower device. */
  netnsFd: [uapi.IFLA_NET_NS_FD, u32],
  altName: [uapi.IFLA_ALT_IFNAME, cstr],
  /** Absent before Linux 5.6, and without hardware. */
  permanentMac: [uapi.IFLA_PERM_ADDRESS, macCodec],
  /** In sysfs: `0000:00:1f.6`. Absent before Linux 5.14. */
  parentDevice: [uapi.IFLA_PARENT_DEV_NAME, cstr],
  extMask: [uapi.IFLA_EXT_MASK, u32],
  info: [
    uapi.IFLA_LINKINFO,
    attrs(() => ({
      kind: [uapi.IFLA_INFO_KIND, cstr],
      data: [uapi.IFLA_INFO_DATA, bytes],
      portKind: [uapi.IFLA_INFO_SLAVE_KIND, cstr],
      portData: [uapi.IFLA_INFO_SLAVE_DATA, bytes],
    })),
  ],
}));
const LINK = /* @__PURE__ */ rtnetlinkOperations("LINK", uapi.RTM_NEWLINK, linkMessage);
const EXT_MASK = { extMask: uapi.RTEXT_FILTER_SKIP_STATS };

export type Link = MessageOut<typeof linkMessage>;
export type LinkIn = MessageIn<typeof linkMessage>;

const propertyMessage = message("link", ifinfomsg, () => ({
  name: [uapi.IFLA_IFNAME, cstr],
  properties: [uapi.IFLA_PROP_LIST, attrs(() => ({ altName: [uapi.IFLA_ALT_IFNAME, cstr] }))],
}));
const PROPERTY = /* @__PURE__ */ rtnetlinkOperations("LINKPROP", uapi.RTM_NEWLINKPROP, propertyMessage);

/** @throws {NetlinkError} `ENODEV` for an impossible name; the kernel says EINVAL */
function selector(key: string | number): LinkIn {
  if (typeof key === "number") return { index: key };
  const { length } = new TextEncoder().encode(key);
  if (length >= uapi.ALTIFNAMSIZ || key.includes("\0")) {
    throw new NetlinkError({ request: LINK.GET.name, errno: ENODEV });
  }
  return length < IFNAMSIZ ? { name: key } : { altName: key };
}

export function add(nl: Netlink, spec: LinkIn): void {
  withPurpose(`add link "${spec.name}"`, () => execute(nl, LINK.NEW, spec, NLM_F_CREATE | NLM_F_EXCL));
}

export function get(nl: Netlink, key: string | number): Link {
  return withPurpose(`find link "${key}"`, () => query(nl, LINK.GET, { ...selector(key), ...EXT_MASK }));
}

export function getAll(nl: Netlink, keys: readonly (string | number)[]): Link[] {
  return withPurpose(
    () => `find links ${quoted(keys)}`,
    () => queryAll(nl, LINK.GET, keys.map((key) => ({ ...selector(key), ...EXT_MASK }))),
  );
}

const quoted = (names: readonly (string | number)[]): string => names.map((name) => `"${name}"`).join(", ");

export function find(nl: Netlink, key: string | number): Link | undefined {
  // A link that may be absent needs no error, which takes longer to make than the kernel's answer.
  const ask = () => queryAllIfPresent(nl, [request(LINK.GET, { ...selector(key), ...EXT_MASK })], [ENODEV])[0];
  // Impossible names make one, and so do dry runs.
  return ignoreErrors(["ENODEV"], () => withPurpose(`find link "${key}"`, ask)) as Link | undefined;
}

/** @param master index of a bridge or VRF, to list its ports */
export function list(nl: Netlink, { master }: { readonly master?: number } = {}): Link[] {
  const links = withPurpose("list links", () => dump(nl, LINK.GET, { master, ...EXT_MASK }));
  // Kernels before 4.6 do not filter.
  return master === undefined ? links : links.filter((entry) => entry.master === master);
}

export function set(nl: Netlink, key: string | number, change: LinkIn): void {
  withPurpose(`change link "${key}"`, () => execute(nl, LINK.NEW, { ...change, ...selector(key) }));
}

/** @throws {NetlinkError} `EEXIST` if another link has the one at `index`; `EOPNOTSUPP` before Linux 5.5 */
export function addAltNames(nl: Netlink, name: string, altNames: readonly string[]): void {
  withPurpose(
    () => `give link "${name}" the names ${quoted(altNames)}`,
    () => executeAll(nl, altNames.map((altName) => request(PROPERTY.NEW, { name, properties: { altName } }))),
  );
}

/** The kernel is about to remove both ends then. */
export function isPeerNetnsGone(nl: Netlink, { linkIndex, linkNetnsId }: Link): boolean {
  if (linkIndex === undefined || linkNetnsId === undefined) return false;
  try {
    query(nl, LINK.GET, { index: linkIndex, targetNetnsId: linkNetnsId, ...EXT_MASK });
    return false;
  } catch (error) {
    // Other errors, such as for another user's namespace, prove nothing.
    if (error instanceof NetlinkError) return error.code === "EINVAL";
    throw error;
  }
}

export function setUpRequest(index: number): NetlinkRequest {
  return request(LINK.NEW, { index, flags: uapi.IFF_UP, change: uapi.IFF_UP });
}

export function setUp(nl: Netlink, index: number): void {
  withPurpose(`set link ${index} up`, () => executeAll(nl, [setUpRequest(index)]));
}

export function remove(nl: Netlink, key: string | number): void {
  withPurpose(`remove link "${key}"`, () => execute(nl, LINK.DEL, selector(key)));
}

/** @throws {NetlinkError} `ENODEV` for an empty group */
export function removeGroup(nl: Netlink, group: number): void {
  withPurpose(`remove the links of group ${group}`, () => execute(nl, LINK.DEL, { group }));
}

// An attempt fails if a listed link is gone.
const REMOVAL_ATTEMPTS = 20;

/**
 * Removes the links that `select` picks, as one group: a removal takes 15 ms for any number of links.
 *
 * @param select called again if links went away
 */
export function removeSelected(nl: Netlink, select: (all: readonly Link[]) => readonly Link[]): void {
  for (let attempt = 1;; attempt++) {
    const all = list(nl);
    const selected = select(all);
    if (selected.length === 0) return;
    const group = unusedGroup(all);
    const allExisted = setGroup(nl, selected, group);
    ignoreErrors(["ENODEV"], () => withPurpose(`remove ${selected.length} links`, () => removeGroup(nl, group)));
    if (allExisted) return;
    if (attempt === REMOVAL_ATTEMPTS) {
      throw new NetlinkError({ request: LINK.DEL.name, errno: ERESTART, extack: "Links kept going away" });
    }
  }
}

/** Returns false if links were gone or answers lost; the other links are in the group. */
function setGroup(nl: Netlink, links: readonly Link[], group: number): boolean {
  const requests = links.map(({ index }) => request(LINK.NEW, { index, group }));
  return ignoreErrors(["ENODEV", "ENOBUFS"], () => {
    withPurpose(`put ${links.length} links into group ${group}`, () => executeAll(nl, requests));
    return true;
  }) ?? false;
}

function unusedGroup(all: readonly Link[]): number {
  const used = new Set(all.map((entry) => entry.group));
  for (;;) {
    const [group = 0] = crypto.getRandomValues(new Uint32Array(1));
    if (group !== 0 && !used.has(group)) return group;
  }
}

export function isUp(link: Link): boolean {
  return (link.flags & uapi.IFF_UP) !== 0;
}

export function isRunning(link: Link): boolean {
  return (link.flags & uapi.IFF_RUNNING) !== 0;
}

export function hasCarrier(link: Link): boolean {
  return (link.flags & uapi.IFF_LOWER_UP) !== 0;
}

/** The word of RFC 2863, as the kernel has it: `lowerlayerdown`. */
export function operationalState({ operstate = 0 }: Link): string {
  const states = ["unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up"];
  return states[operstate] ?? String(operstate);
}

const EVENT_TIMEOUT_MS = 5000;

/**
 * Waits some seconds until a link can carry frames. Recent kernels settle that before they answer.
 *
 * @param openEvents opens a socket of RTNLGRP_LINK in the namespace of `nl`
 * @throws {NetlinkError} `ETIMEDOUT` with the link's state
 */
export function awaitOperational(nl: Netlink, device: Link, openEvents: () => Netlink): Link {
  let current = device;
  const isOperational = () => current.operstate === uapi.IF_OPER_UP;
  const update = () => {
    current = get(nl, device.index);
    return isOperational();
  };
  if (isOperational() || repeatAtEvents(update, openEvents)) return current;
  throw new NetlinkError(
    { request: "wait", errno: ETIMEDOUT, extack: `operational state ${operationalState(current)}` },
    `wait for "${device.name}" to come up`,
  );
}

/** @param openEvents as for {@linkcode awaitOperational} */
export function awaitLink(
  nl: Netlink,
  select: (all: readonly Link[]) => Link | undefined,
  openEvents: () => Netlink,
): Link | undefined {
  return repeatAtEvents(() => select(list(nl)), openEvents);
}

function repeatAtEvents<T>(call: () => T, openEvents: () => Netlink): T {
  using events = openEvents();
  for (const deadline = performance.now() + EVENT_TIMEOUT_MS;;) {
    const result = call();
    if (result || performance.now() > deadline || !receiveEvents(events, LINK.NEW)) return result;
  }
}
