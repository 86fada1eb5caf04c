/**
 * IP addresses on links.
 *
 * @see linux/if_addr.h
 * @module
 */
import { broadcastOf, type Cidr, familyOf, type Ip, ipOf, prefixLengthOf, toCidr } from "../address.ts";
import { i32, ipCodec, struct, u32, u8 } from "../netlink/codec.ts";
import {
  message,
  type MessageIn,
  type MessageOut,
  NLM_F_CREATE,
  NLM_F_EXCL,
  type Operation,
} from "../netlink/message.ts";
import { NetlinkError, withRequestPurpose } from "../netlink/error.ts";
import { dump, execute, type Netlink, type NetlinkRequest, receiveEvents, request } from "../netlink/socket.ts";
import { EINTR, ETIMEDOUT } from "../sys/errno.ts";
import { SystemError } from "../sys/error.ts";
import { takePendingSignal } from "../sys/signals.ts";
import { AF_INET, AF_INET6 } from "../sys/uapi.ts";
import * as link from "./link.ts";
import {
  IFA_ADDRESS,
  IFA_BROADCAST,
  IFA_F_DADFAILED,
  IFA_F_NODAD,
  IFA_F_NOPREFIXROUTE,
  IFA_F_TENTATIVE,
  IFA_FLAGS,
  IFA_LOCAL,
  IFA_PROTO,
  IFA_TARGET_NETNSID,
  RTM_DELADDR,
  RTM_GETADDR,
  RTM_NEWADDR,
} from "./uapi.ts";

const ifaddrmsg = struct({ family: u8, prefixLength: u8, shortFlags: u8, scope: u8, index: u32 });
/** An address, as in RTM_NEWADDR and its relatives. */
export const addressMessage = message("address", ifaddrmsg, () => ({
  local: [IFA_LOCAL, ipCodec],
  address: [IFA_ADDRESS, ipCodec],
  broadcast: [IFA_BROADCAST, ipCodec],
  flags: [IFA_FLAGS, u32],
  targetNetnsId: [IFA_TARGET_NETNSID, i32],
  protocol: [IFA_PROTO, u8],
}));
type AddressOp = Operation<typeof addressMessage>;
const NEW: AddressOp = { name: "RTM_NEWADDR", type: RTM_NEWADDR, spec: addressMessage };
const DEL: AddressOp = { name: "RTM_DELADDR", type: RTM_DELADDR, spec: addressMessage };
const GET: AddressOp = { name: "RTM_GETADDR", type: RTM_GETADDR, spec: addressMessage };

/** An address on a link. */
export interface InterfaceAddress {
  readonly address: Cidr;
  /** Index of the link. */
  readonly index: number;
  /** IFA_F_… */
  readonly flags: number;
  /** RT_SCOPE_… */
  readonly scope: number;
  /** Who added it: IFAPROT_…, or a number above those; 0 where that is not said, and on kernels before 5.18. */
  readonly protocol: number;
}

/** The kernel's number of an address family. */
export function addressFamily(address: Ip | Cidr): number {
  return familyOf(address) === 4 ? AF_INET : AF_INET6;
}

function fields(index: number, address: Cidr): MessageIn<typeof addressMessage> {
  return {
    family: addressFamily(address),
    prefixLength: prefixLengthOf(address),
    index,
    local: ipOf(address),
    address: ipOf(address),
  };
}

/** How an address is put on a link. */
export interface AddressOptions {
  /** Usable at once: no search for duplicates (IPv6). */
  readonly noDad?: boolean;
  /** No route to the address's subnet comes with it. */
  readonly noPrefixRoute?: boolean;
  /** See {@linkcode InterfaceAddress.protocol}. */
  readonly protocol?: number;
}

/** The request that puts an address on a link, to be sent with others. */
export function addRequest(index: number, address: Cidr, options: AddressOptions = {}): NetlinkRequest {
  const { noDad = false, noPrefixRoute = false, protocol = 0 } = options;
  const value = fields(index, address);
  // As ip(8) does not, but every DHCP client and the CNI plugins do: a broadcast address where the subnet has one.
  const broadcast = familyOf(address) === 4 && prefixLengthOf(address) < 31 ? { broadcast: broadcastOf(address) } : {};
  const flags = (noDad && familyOf(address) === 6 ? IFA_F_NODAD : 0) | (noPrefixRoute ? IFA_F_NOPREFIXROUTE : 0);
  const optional = { ...flags ? { flags } : {}, ...protocol ? { protocol } : {} };
  return request(NEW, { ...value, ...broadcast, ...optional }, NLM_F_CREATE | NLM_F_EXCL);
}

/** Removes an address from a link. @throws {NetlinkError} `EADDRNOTAVAIL` if it is not there */
export function remove(nl: Netlink, index: number, address: Cidr): void {
  withRequestPurpose(
    () => `remove address ${address} from link ${index}`,
    () => execute(nl, DEL, fields(index, address)),
  );
}

/** Which addresses are asked for; all of them unless told. */
export interface AddressFilter {
  /** Index of the link. */
  readonly index?: number;
  readonly family?: number;
  /** Another namespace, by the number that this one has for it. Kernels before 4.20 do not know it. */
  readonly netnsId?: number;
}

/** The addresses of a link, or of all links, of one family or both. @throws {NetlinkError} `EINVAL` if there is no such namespace */
export function list(nl: Netlink, filter: AddressFilter = {}): InterfaceAddress[] {
  const { index = 0, family = 0, netnsId } = filter;
  const target = netnsId === undefined ? {} : { targetNetnsId: netnsId };
  // Kernels before 4.20 do not filter.
  const addresses = withRequestPurpose(() => "list addresses", () => dump(nl, GET, { index, family, ...target }));
  return addresses.filter((reply) => index === 0 || reply.index === index).map(toInterfaceAddress);
}

function toInterfaceAddress(reply: MessageOut<typeof addressMessage>): InterfaceAddress {
  // On a point-to-point link IFA_ADDRESS is the other side.
  const local = reply.local ?? reply.address;
  if (local === undefined) throw new RangeError("Cannot use an address message of the kernel: it holds no address");
  return {
    address: toCidr(local, reply.prefixLength),
    index: reply.index,
    flags: reply.flags ?? reply.shortFlags,
    scope: reply.scope,
    protocol: reply.protocol ?? 0,
  };
}

/**
 * How long the search for duplicates may take. Without a wish of the administrator's it is two seconds at most; but where hundreds of links
 * are made and removed at once, the kernel may not come to it for many seconds.
 */
const DAD_TIMEOUT_MS = 60_000;

/**
 * Waits until the kernel has announced every one of these IPv6 addresses as usable, by its own events.
 *
 * @param nl what to ask where events were lost; in the same namespace as `events`
 * @param events a socket that has been listening to RTNLGRP_IPV6_IFADDR since before the addresses were added
 * @param duplicateError makes the error to throw when another host has the address
 * @throws {SystemError} `EINTR` if a signal that is held back asks to end
 * @throws {NetlinkError} `ETIMEDOUT` if the kernel stays silent for too long, for some seconds where the link has no carrier
 */
export function awaitDad(
  nl: Netlink,
  events: Netlink,
  index: number,
  addresses: readonly Cidr[],
  duplicateError: (address: Cidr) => Error,
  timeoutMs = DAD_TIMEOUT_MS,
): void {
  const tentative = new Set(addresses);
  const deadline = performance.now() + timeoutMs;
  while (tentative.size > 0) {
    const received = receiveEvents(events, NEW);
    if (!received && takePendingSignal()) throw new SystemError("recv", EINTR, "await usable addresses");
    const current = Array.isArray(received) ? received.map(toInterfaceAddress) : list(nl, { index, family: AF_INET6 });
    for (const entry of current.filter((entry) => entry.index === index)) {
      if (entry.flags & IFA_F_DADFAILED && tentative.has(entry.address)) throw duplicateError(entry.address);
      if (!(entry.flags & IFA_F_TENTATIVE)) tentative.delete(entry.address);
    }
    const isTimedOut = performance.now() > deadline || (!received && !link.isRunning(link.get(nl, index)));
    if (tentative.size > 0 && isTimedOut) {
      const extack = `no word about ${[...tentative].join(", ")}`;
      throw new NetlinkError({ request: "duplicate address detection", errno: ETIMEDOUT, extack });
    }
  }
}
