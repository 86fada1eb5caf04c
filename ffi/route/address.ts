import { broadcastOf, type Cidr, familyOf, type Ip, ipOf, prefixLengthOf, toCidr } from "../address.ts";
import { i32, ipCodec, struct, u32, u8 } from "../netlink/codec.ts";
import { message, type MessageIn, type MessageOut, NLM_F_CREATE, NLM_F_EXCL } from "../netlink/message.ts";
import { NetlinkError } from "../netlink/error.ts";
import { dump, execute, type Netlink, type NetlinkRequest, receiveEvents, request } from "../netlink/socket.ts";
import { EINTR, ETIMEDOUT } from "../sys/errno.ts";
import { SystemError, withPurpose } from "../sys/error.ts";
import { takePendingSignal } from "../sys/signals.ts";
import { AF_INET, AF_INET6 } from "../sys/uapi.ts";
import * as link from "./link.ts";
import { rtnetlinkOperations } from "./operations.ts";
import * as uapi from "./uapi.ts";

export const ifaddrmsg = struct({ family: u8, prefixLength: u8, shortFlags: u8, scope: u8, index: u32 });
export const addressMessage = message("address", ifaddrmsg, () => ({
  local: [uapi.IFA_LOCAL, ipCodec],
  address: [uapi.IFA_ADDRESS, ipCodec],
  broadcast: [uapi.IFA_BROADCAST, ipCodec],
  flags: [uapi.IFA_FLAGS, u32],
  targetNetnsId: [uapi.IFA_TARGET_NETNSID, i32],
  protocol: [uapi.IFA_PROTO, u8],
}));
const ADDRESS = /* @__PURE__ */ rtnetlinkOperations("ADDR", uapi.RTM_NEWADDR, addressMessage);

export interface InterfaceAddress {
  readonly address: Cidr;
  readonly index: number;
  readonly flags: number;
  readonly scope: number;
  /** Who added it: IFAPROT_… or higher; 0 if unknown, and before Linux 5.18. */
  readonly protocol: number;
}

export function addressFamily(address: Ip | Cidr): number {
  return familyOf(address) === 4 ? AF_INET : AF_INET6;
}

function fields(index: number, address: Cidr): MessageIn<typeof addressMessage> {
  const ip = ipOf(address);
  return { family: addressFamily(ip), prefixLength: prefixLengthOf(address), index, local: ip, address: ip };
}

export interface AddressOptions {
  readonly noDad?: boolean;
  readonly noPrefixRoute?: boolean;
  readonly protocol?: number;
}

export function addRequest(index: number, address: Cidr, options: AddressOptions = {}): NetlinkRequest {
  const { noDad = false, noPrefixRoute = false, protocol = 0 } = options;
  // DHCP clients and the CNI plugins set it, ip(8) does not.
  const broadcast = familyOf(address) === 4 && prefixLengthOf(address) < 31 ? broadcastOf(address) : undefined;
  const flags = (noDad && familyOf(address) === 6 ? uapi.IFA_F_NODAD : 0) |
    (noPrefixRoute ? uapi.IFA_F_NOPREFIXROUTE : 0);
  const optional = { broadcast, flags: flags || undefined, protocol: protocol || undefined };
  return request(ADDRESS.NEW, { ...fields(index, address), ...optional }, NLM_F_CREATE | NLM_F_EXCL);
}

/** @throws {NetlinkError} `EADDRNOTAVAIL` if the link lacks it */
export function remove(nl: Netlink, index: number, address: Cidr): void {
  withPurpose(`remove address ${address} from link ${index}`, () => execute(nl, ADDRESS.DEL, fields(index, address)));
}

export interface AddressFilter {
  readonly index?: number;
  readonly family?: number;
  /** Lists another namespace, by this one's number for it. Ignored before Linux 4.20. */
  readonly netnsId?: number;
}

/** @throws {NetlinkError} `EINVAL` for an unknown `netnsId` */
export function list(nl: Netlink, { index = 0, family = 0, netnsId }: AddressFilter = {}): InterfaceAddress[] {
  const addresses = withPurpose(
    "list addresses",
    () => dump(nl, ADDRESS.GET, { index, family, targetNetnsId: netnsId }),
  );
  // Kernels before 4.20 do not filter.
  return addresses.filter((reply) => index === 0 || reply.index === index).map(toInterfaceAddress);
}

function toInterfaceAddress(reply: MessageOut<typeof addressMessage>): InterfaceAddress {
  // IFA_ADDRESS is the peer's on point-to-point links.
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

// Detection takes two seconds by default, far longer during mass changes of links.
const DAD_TIMEOUT_MS = 60_000;

/**
 * Waits until these IPv6 addresses have passed duplicate address detection.
 *
 * @param nl queried when events were lost; in the namespace of `events`
 * @param events a socket of RTNLGRP_IPV6_IFADDR, opened before the addresses were added
 * @param duplicateError for an address that another host has
 * @throws {SystemError} `EINTR` if a blocked signal asks to end
 * @throws {NetlinkError} `ETIMEDOUT`; within seconds if the link has no carrier
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
    const received = receiveEvents(events, ADDRESS.NEW);
    if (!received && takePendingSignal()) throw new SystemError("recv", EINTR, "await usable addresses");
    const current = Array.isArray(received) ? received.map(toInterfaceAddress) : list(nl, { index, family: AF_INET6 });
    for (const entry of current.filter((entry) => entry.index === index)) {
      if (entry.flags & uapi.IFA_F_DADFAILED && tentative.has(entry.address)) throw duplicateError(entry.address);
      if (!(entry.flags & uapi.IFA_F_TENTATIVE)) tentative.delete(entry.address);
    }
    const isTimedOut = performance.now() > deadline || (!received && !link.isRunning(link.get(nl, index)));
    if (tentative.size > 0 && isTimedOut) {
      const extack = `no word about ${[...tentative].join(", ")}`;
      throw new NetlinkError({ request: "duplicate address detection", errno: ETIMEDOUT, extack });
    }
  }
}
