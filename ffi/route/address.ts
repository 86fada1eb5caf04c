/**
 * IP addresses on links.
 *
 * @see linux/if_addr.h
 * @module
 */
import { broadcastOf, type Cidr, cidr, familyOf, type Ip, ipOf, prefixLengthOf } from "../address.ts";
import { ip, struct, u32, u8 } from "../netlink/codec.ts";
import { message, type MessageIn, type MessageOut, NLM_F_CREATE, NLM_F_EXCL, type Op } from "../netlink/message.ts";
import { NetlinkError, purposed } from "../netlink/error.ts";
import { awaitEvents, dump, execute, type Netlink, type Request, request } from "../netlink/socket.ts";
import { SystemError } from "../sys/error.ts";
import { takeHeldSignal } from "../sys/signals.ts";
import * as link from "./link.ts";
import {
  AF_INET,
  AF_INET6,
  IFA_ADDRESS,
  IFA_BROADCAST,
  IFA_F_DADFAILED,
  IFA_F_NODAD,
  IFA_F_NOPREFIXROUTE,
  IFA_F_TENTATIVE,
  IFA_FLAGS,
  IFA_LOCAL,
  RTM_DELADDR,
  RTM_GETADDR,
  RTM_NEWADDR,
} from "./uapi.ts";

const ifaddrmsg = struct({ family: u8, prefixLength: u8, shortFlags: u8, scope: u8, index: u32 });
/** An address, as in RTM_NEWADDR and its relatives. */
export const addressMessage = message("address", ifaddrmsg, () => ({
  local: [IFA_LOCAL, ip],
  address: [IFA_ADDRESS, ip],
  broadcast: [IFA_BROADCAST, ip],
  flags: [IFA_FLAGS, u32],
}));
type AddressOp = Op<typeof addressMessage>;
const NEW: AddressOp = { name: "RTM_NEWADDR", type: RTM_NEWADDR, spec: addressMessage };
const DEL: AddressOp = { name: "RTM_DELADDR", type: RTM_DELADDR, spec: addressMessage };
const GET: AddressOp = { name: "RTM_GETADDR", type: RTM_GETADDR, spec: addressMessage };

/** An address on a link. */
export interface Address {
  readonly address: Cidr;
  /** Index of the link. */
  readonly index: number;
  /** IFA_F_… */
  readonly flags: number;
  /** RT_SCOPE_… */
  readonly scope: number;
}

/** The kernel's number of an address family. */
export function afOf(address: Ip | Cidr): number {
  return familyOf(address) === 4 ? AF_INET : AF_INET6;
}

function fields(index: number, address: Cidr): MessageIn<typeof addressMessage> {
  return {
    family: afOf(address),
    prefixLength: prefixLengthOf(address),
    index,
    local: ipOf(address),
    address: ipOf(address),
  };
}

/** How an address is put on a link. */
export interface AddressOptions {
  /** Usable at once: no search for duplicates (IPv6). */
  readonly withoutDad?: boolean;
  /** No route to the address's subnet comes with it. */
  readonly withoutRoute?: boolean;
}

/** The request that puts an address on a link, to be sent with others. */
export function addRequest(index: number, address: Cidr, options: AddressOptions = {}): Request {
  const { withoutDad = false, withoutRoute = false } = options;
  const value = fields(index, address);
  // As ip(8) does not, but every DHCP client and the CNI plugins do: a broadcast address where the subnet has one.
  const broadcast = familyOf(address) === 4 && prefixLengthOf(address) < 31 ? { broadcast: broadcastOf(address) } : {};
  const flags = (withoutDad && familyOf(address) === 6 ? IFA_F_NODAD : 0) | (withoutRoute ? IFA_F_NOPREFIXROUTE : 0);
  return request(NEW, { ...value, ...broadcast, ...flags ? { flags } : {} }, NLM_F_CREATE | NLM_F_EXCL);
}

/** Removes an address from a link. @throws {NetlinkError} `EADDRNOTAVAIL` if it is not there */
export function remove(nl: Netlink, index: number, address: Cidr): void {
  purposed(() => `remove address ${address} from link ${index}`, () => execute(nl, DEL, fields(index, address)));
}

/** The addresses of a link, or of all links, of one family or both. @throws {NetlinkError} */
export function list(nl: Netlink, filter: { readonly index?: number; readonly family?: number } = {}): Address[] {
  const { index = 0, family = 0 } = filter;
  // Kernels before 4.20 do not filter.
  const found = purposed(() => "list addresses", () => dump(nl, GET, { index, family }));
  return found.filter((one) => index === 0 || one.index === index).map(read);
}

function read(one: MessageOut<typeof addressMessage>): Address {
  // On a point-to-point link IFA_ADDRESS is the other side.
  const own = one.local ?? one.address;
  if (own === undefined) throw new RangeError("Cannot use an address message of the kernel: it holds no address");
  return {
    address: cidr(own, one.prefixLength),
    index: one.index,
    flags: one.flags ?? one.shortFlags,
    scope: one.scope,
  };
}

/**
 * How long the search for duplicates may take. Without a wish of the administrator's it is two seconds at most; but where hundreds of links
 * are made and removed at once, the kernel may not come to it for many seconds.
 */
const USABLE_MS = 60_000;

/**
 * Waits until the kernel has announced every one of these IPv6 addresses as usable, by its own events.
 *
 * @param nl what to ask where events were lost; in the same namespace as `events`
 * @param events a socket that has been listening to RTNLGRP_IPV6_IFADDR since before the addresses were added
 * @param duplicate makes the error to throw when another host has the address
 * @throws {SystemError} `EINTR` if a signal that is held back asks to end
 * @throws {NetlinkError} `ETIMEDOUT` if the kernel stays silent for too long, for some seconds where the link has no carrier
 */
export function awaitUsable(
  nl: Netlink,
  events: Netlink,
  index: number,
  addresses: readonly Cidr[],
  duplicate: (address: Cidr) => Error,
  timeoutMs = USABLE_MS,
): void {
  const missing = new Set(addresses);
  const deadline = performance.now() + timeoutMs;
  while (missing.size > 0) {
    const news = awaitEvents(events, NEW);
    if (!news && takeHeldSignal()) throw new SystemError("recv", EINTR, "await usable addresses");
    const now = Array.isArray(news) ? news.map(read) : list(nl, { index, family: AF_INET6 });
    for (const one of now.filter((each) => each.index === index)) {
      if (one.flags & IFA_F_DADFAILED && missing.has(one.address)) throw duplicate(one.address);
      if (!(one.flags & IFA_F_TENTATIVE)) missing.delete(one.address);
    }
    const isHopeless = performance.now() > deadline || (!news && !link.isRunning(link.get(nl, index)));
    if (missing.size > 0 && isHopeless) {
      const kernel = `no word about ${[...missing].join(", ")}`;
      throw new NetlinkError({ request: "duplicate address detection", errno: ETIMEDOUT, kernel });
    }
  }
}

const EINTR = 4;
const ETIMEDOUT = 110;
