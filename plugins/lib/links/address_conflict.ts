/** Address conflict detection (RFC 5227) on networks with hosts outside this node. @module */
import { type Cidr, familyOf, type Ip, ipOf, type Mac } from "../../../ffi/address.ts";
import { type ArpSocket, openArpSocket } from "../../../ffi/packet/arp.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import * as address from "../../../ffi/route/address.ts";
import * as link from "../../../ffi/route/link.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import { CniError, Code } from "../../../spec/error.ts";
import type { Result } from "../../../spec/result.ts";
import { configureInterface, ipsOf } from "./configure_interface.ts";
import { describeUpperDevice, listUpperDevices, type UpperDevice } from "./upper_device.ts";
import { type LowerDevice, lowerDeviceInUseError } from "./lower_device.ts";
import { formatAlias } from "../model/owner.ts";
import type { AddCall } from "../protocol/plugin.ts";

export interface ConflictDetection {
  /** The link that sends ARP probes and gets the replies; nobody without broadcast. */
  readonly probeFrom: "container" | "master" | "nobody";
  /** The lower device's own addresses are on the same network. */
  readonly includesLowerDevice: boolean;
}

/**
 * Sets the container's link up, with the addresses and routes of `result`.
 *
 * @throws {CniError} if another host has one of the addresses, or the lower device is down
 */
export function configureWithConflictDetection(
  call: AddCall<unknown>,
  lower: LowerDevice,
  device: link.Link,
  result: Result,
  detection: ConflictDetection,
): void {
  const { netns, ifname, log } = call;
  // The link itself sends the probes.
  setDeviceUp(call, lower, device);
  const addresses = ipsOf(result, ifname).map((ip) => ip.address);
  if (addresses.length === 0) return;
  if (detection.includesLowerDevice) rejectLowerDeviceAddresses(addresses, lower);
  const noCarrier = !hasCarrier(netns, lower, device);
  using arp = noCarrier ? undefined : openArpProbe(call, lower, device, detection);
  const ipv4Addresses = addresses.filter((cidr) => familyOf(cidr) === 4).map(ipOf);
  const claim = ipv4Addresses.length > 0 ? arp?.probe(ipv4Addresses) : undefined;
  if (claim) throw addressInUseError(call, lower, detection, claim.address, claim.mac);
  if (noCarrier) log(`No carrier on "${lower.link.name}": address conflicts cannot be detected`);
  try {
    const duplicateAddressError = (cidr: Cidr) => addressInUseError(call, lower, detection, cidr);
    configureInterface(netns, device, result, { noDad: false, noCarrier, duplicateAddressError, log });
  } catch (error) {
    throw explainAddressInUse(error, lower, addresses);
  }
  // The kernel announces only addresses that a link has when it comes up.
  arp?.announce(ipv4Addresses);
}

function setDeviceUp({ netns, ifname, owner }: AddCall<unknown>, lower: LowerDevice, { index, mac }: link.Link): void {
  const { name, mac: lowerMac } = lower.link;
  try {
    link.setUp(netns.route, index);
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
    const purpose = `set "${ifname}" up`;
    if (error.code === "ENETDOWN") {
      const details = `set it up first: ip link set ${name} up`;
      throw new CniError(Code.Internal, `Cannot ${purpose}: its master "${name}" is down`, { details });
    }
    const refusal = error.withPurpose(purpose);
    if (error.code !== "EADDRINUSE") throw refusal;
    if (mac === lowerMac) {
      throw new CniError(Code.Internal, `Cannot ${purpose}: its master "${name}" has MAC address ${mac} too`);
    }
    const isOther = ({ link }: UpperDevice) => link.mac === mac && link.alias !== formatAlias(owner);
    throw lowerDeviceInUseError(refusal, lower, isOther);
  }
}

function hasCarrier(netns: Netns, lower: LowerDevice, device: link.Link): boolean {
  const lowerLink = link.get(lower.netns.route, lower.link.index);
  return link.isUp(lowerLink) && link.hasCarrier(link.get(netns.route, device.index));
}

function openArpProbe(
  { netns, log }: AddCall<unknown>,
  lower: LowerDevice,
  device: link.Link,
  { probeFrom }: ConflictDetection,
): ArpSocket | undefined {
  const [probeNetns, { index, mac }] = probeFrom === "container" ? [netns, device] : [lower.netns, lower.link];
  if (probeFrom === "nobody" || !mac) return undefined;
  try {
    return probeNetns.run<ArpSocket>(() => openArpSocket(index, mac));
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    log(`Cannot probe for address conflicts, continuing without: ${error.message}`);
    return undefined;
  }
}

/** The kernel delivers no frames between a link and its lower device, so probes miss it. */
function rejectLowerDeviceAddresses(
  addresses: readonly Cidr[],
  { netns, link: { name, index }, configured }: LowerDevice,
): void {
  if (configured) rejectLowerDeviceAddresses(addresses, configured);
  const lowerIps = new Set(address.list(netns.route, { index }).map((entry) => ipOf(entry.address)));
  const conflicting = addresses.find((cidr) => lowerIps.has(ipOf(cidr)));
  if (conflicting) throw new CniError(Code.Internal, `Cannot use address ${conflicting}: master "${name}" has it`);
}

/** Names the local container that has the address, or the other host's MAC address. */
function addressInUseError(
  { ifname, owner }: AddCall<unknown>,
  lower: LowerDevice,
  { includesLowerDevice }: ConflictDetection,
  address: Ip | Cidr,
  mac?: Mac,
): CniError {
  // If the lower device is not on the network, its other users are not.
  const upperDevices = includesLowerDevice ? listUpperDevices(lower.netns, lower.link.index) : [];
  const others = upperDevices.filter(({ link }) => link.alias !== formatAlias(owner));
  const hasAddress = ({ addresses }: UpperDevice) =>
    addresses.some((cidr) => cidr === address || ipOf(cidr) === address);
  const replying = others.find(({ link }) => mac !== undefined && link.mac === mac);
  // Each interface of a container answers for all of its addresses.
  const conflicting = mac === undefined
    ? others.find(hasAddress)
    : replying && (others.find((other) => other.netnsPath === replying.netnsPath && hasAddress(other)) ?? replying);
  const user = conflicting ? describeUpperDevice(conflicting) : "another host on the network";
  return new CniError(
    Code.Internal,
    `Cannot use address ${address} on "${ifname}" of master "${lower.link.name}": in use by ${user}${
      mac ? `, MAC address ${mac}` : ""
    }`,
  );
}

/** The kernel refuses one address on two ipvlans of a master. */
function explainAddressInUse(error: unknown, lower: LowerDevice, addresses: readonly Cidr[]): unknown {
  if (!(error instanceof NetlinkError && error.code === "EADDRINUSE")) return error;
  const ips = new Set(addresses.map(ipOf));
  return lowerDeviceInUseError(error, lower, (device) => device.addresses.some((cidr) => ips.has(ipOf(cidr))));
}
