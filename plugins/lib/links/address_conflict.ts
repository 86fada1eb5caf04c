/**
 * Attaching a container to a wire that it shares with machines nobody here knows: an address is taken only if nobody has it.
 *
 * @module
 */
import { type Cidr, familyOf, type Ip, ipOf, type Mac } from "../../../ffi/address.ts";
import { type Arp, openArp } from "../../../ffi/arp.ts";
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import * as address from "../../../ffi/route/address.ts";
import * as link from "../../../ffi/route/link.ts";
import { IFF_LOWER_UP } from "../../../ffi/route/uapi.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import { CniError, Code } from "../../../spec/error.ts";
import type { Result } from "../../../spec/result.ts";
import { configure, ipsOf } from "./interface.ts";
import { describeUser, type LinkUser, listUsers } from "./upper_device.ts";
import { type Master, nameOf, usedBy } from "./lower_device.ts";
import { formatAlias } from "../protocol/owner.ts";
import type { AddCall } from "../protocol/plugin.ts";

/** How the container's link and its master share the wire. */
export interface Sharing {
  /** Whose link asks on the wire who has an IPv4 address: that which gets the answer. Nobody, where no frames are sent to all. */
  readonly asks: "container" | "master" | "nobody";
  /** The master's own addresses are on the same wire. */
  readonly withMaster: boolean;
}

/**
 * Sets the container's link up and gives it the addresses and routes of `result`, which may be none.
 *
 * @param device on `master`, by its final name and address
 * @throws {CniError} when another machine has one of the addresses, which is named, or the master is down
 * @throws {NetlinkError}
 */
export function attachToSegment(
  call: AddCall<unknown>,
  master: Master,
  device: link.Link,
  result: Result,
  sharing: Sharing,
): void {
  const { netns, ifname, log } = call;
  setUp(call, master, device);
  const addresses = ipsOf(result, ifname).map((each) => each.address);
  if (addresses.length === 0) return;
  if (sharing.withMaster) refuseMasters(addresses, master);
  const unheard = !isHeard(call, master, device);
  using arp = unheard || sharing.asks === "nobody" ? undefined : listen(call, master, device, sharing.asks);
  const four = addresses.filter((each) => familyOf(each) === 4).map(ipOf);
  const claim = four.length > 0 ? arp?.findClaim(four) : undefined;
  if (claim) throw duplicateOf(call, master, sharing, claim.address, claim.mac);
  if (unheard) log(`Nobody can be heard on ${nameOf(master)}: whether others have the same addresses is not known`);
  try {
    const duplicate = (each: Cidr) => duplicateOf(call, master, sharing, each);
    configure(netns, device, result, { withoutDad: false, unheard, duplicate, log });
  } catch (error) {
    throw inUse(error, master, addresses);
  }
  // The link was up before it had addresses, so that the kernel did not tell of them.
  arp?.announce(four);
}

/** Before addresses, because who has them is asked by the link itself. */
function setUp({ netns, ifname, owner }: AddCall<unknown>, master: Master, { index, mac }: link.Link): void {
  try {
    link.setUp(netns.route, index);
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
    const refusal = error.forPurpose(`set "${ifname}" up`);
    if (error.code === "ENETDOWN") {
      const message = `Cannot set "${ifname}" up: its master ${nameOf(master)} is down`;
      throw new CniError(Code.Internal, message, { details: `set it up first: ip link set ${master.link.name} up` });
    }
    if (error.code !== "EADDRINUSE") throw refusal;
    throw mac === master.link.mac
      ? new CniError(
        Code.Internal,
        `Cannot set "${ifname}" up: its master ${nameOf(master)} has MAC address ${mac} too`,
      )
      : usedBy(refusal, master, (other) => other.link.mac === mac && other.link.alias !== formatAlias(owner));
  }
}

/** Whether what is sent can reach anybody. */
function isHeard({ netns }: AddCall<unknown>, master: Master, device: link.Link): boolean {
  const below = link.get(master.netns.route, master.link.index);
  return link.isUp(below) && (link.get(netns.route, device.index).flags & IFF_LOWER_UP) !== 0;
}

function listen(
  { netns, log }: AddCall<unknown>,
  master: Master,
  device: link.Link,
  asks: "container" | "master",
): Arp | undefined {
  const [place, by] = asks === "container" ? [netns, device] : [master.netns, master.link];
  if (!by.mac) return undefined;
  try {
    return place.run<Arp>(() => openArp(by.index, by.mac as Mac));
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    log(`Cannot ask who has the addresses, going on without: ${error.message}`);
    return undefined;
  }
}

/** What is sent from a link to its own master is not delivered, so that this one would not answer. */
function refuseMasters(addresses: readonly Cidr[], { netns, link: { name, index }, named }: Master): void {
  if (named) refuseMasters(addresses, named);
  const own = new Set(address.list(netns.route, { index }).map((each) => ipOf(each.address)));
  for (const each of addresses) {
    if (!own.has(ipOf(each))) continue;
    throw new CniError(Code.Internal, `Cannot use address ${each}: master "${name}" has it`);
  }
}

/** Somebody has the address: a container of this host, or a machine of which nothing but its MAC address is known, if that. */
function duplicateOf(
  { ifname, owner }: AddCall<unknown>,
  master: Master,
  { withMaster }: Sharing,
  address: Ip | Cidr,
  mac?: Mac,
): CniError {
  // Where the master is not on the wire, its other users are not.
  const users = withMaster ? listUsers(master.netns, master.link.index) : [];
  const others = users.filter(({ link }) => link.alias !== formatAlias(owner));
  const hasIt = ({ addresses }: LinkUser) => addresses.some((each) => each === address || ipOf(each) === address);
  const answerer = others.find(({ link }) => mac !== undefined && link.mac === mac);
  // Each interface of a container answers for all of its addresses.
  const holder = mac === undefined
    ? others.find(hasIt)
    : answerer && (others.find((each) => each.place === answerer.place && hasIt(each)) ?? answerer);
  const who = [holder ? describeUser(holder) : "another machine on the wire", ...mac ? [`MAC address ${mac}`] : []];
  return new CniError(
    Code.Internal,
    `Cannot use address ${address} on "${ifname}" of master ${nameOf(master)}: in use by ${who.join(", ")}`,
  );
}

/** The kernel keeps two ipvlans of one master from having the same address. */
function inUse(error: unknown, master: Master, addresses: readonly Cidr[]): unknown {
  if (!(error instanceof NetlinkError && error.code === "EADDRINUSE")) return error;
  const wanted = new Set(addresses.map(ipOf));
  const hasOne = (user: LinkUser) => user.addresses.some((each) => wanted.has(ipOf(each)));
  return usedBy(error, master, hasOne);
}
