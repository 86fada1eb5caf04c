/**
 * Address conflict detection (RFC 5227) for a container on a network that it shares with hosts outside this node.
 *
 * @module
 */
import { type Cidr, familyOf, type Ip, ipOf, type Mac } from "../../../ffi/address.ts";
import { type ArpSocket, openArpSocket } from "../../../ffi/arp.ts";
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import * as address from "../../../ffi/route/address.ts";
import * as link from "../../../ffi/route/link.ts";
import { IFF_LOWER_UP } from "../../../ffi/route/uapi.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import { CniError, Code } from "../../../spec/error.ts";
import type { Result } from "../../../spec/result.ts";
import { configureInterface, ipsOf } from "./configure_interface.ts";
import { describeUpperDevice, listUpperDevices, type UpperDevice } from "./upper_device.ts";
import { type LowerDevice, lowerDeviceInUseError, quotedName } from "./lower_device.ts";
import { formatAlias } from "../protocol/owner.ts";
import type { AddCall } from "../protocol/plugin.ts";

/** How the container's link and its lower device share the network. */
export interface ConflictDetection {
  /** The link that sends ARP probes: the one that gets the reply. Nobody, where there is no broadcast. */
  readonly probeFrom: "container" | "master" | "nobody";
  /** The lower device's own addresses are on the same network. */
  readonly includesLowerDevice: boolean;
}

/**
 * Sets the container's link up and gives it the addresses and routes of `result`, which may be none.
 *
 * @param device on `master`, by its final name and address
 * @throws {CniError} when another host has one of the addresses, which is named, or the lower device is down
 * @throws {NetlinkError}
 */
export function configureWithConflictDetection(
  call: AddCall<unknown>,
  lower: LowerDevice,
  device: link.Link,
  result: Result,
  detection: ConflictDetection,
): void {
  const { netns, ifname, log } = call;
  setDeviceUp(call, lower, device);
  const addresses = ipsOf(result, ifname).map((element) => element.address);
  if (addresses.length === 0) return;
  if (detection.includesLowerDevice) rejectLowerDeviceAddresses(addresses, lower);
  const noCarrier = !hasCarrier(call, lower, device);
  using arp = noCarrier || detection.probeFrom === "nobody"
    ? undefined
    : openArpProbe(call, lower, device, detection.probeFrom);
  const ipv4Addresses = addresses.filter((element) => familyOf(element) === 4).map(ipOf);
  const claim = ipv4Addresses.length > 0 ? arp?.probe(ipv4Addresses) : undefined;
  if (claim) throw addressInUseError(call, lower, detection, claim.address, claim.mac);
  if (noCarrier) {
    log(`No carrier on ${quotedName(lower)}: address conflicts cannot be detected`);
  }
  try {
    const duplicateAddressError = (element: Cidr) => addressInUseError(call, lower, detection, element);
    configureInterface(netns, device, result, { noDad: false, noCarrier, duplicateAddressError, log });
  } catch (error) {
    throw explainAddressInUse(error, lower, addresses);
  }
  // The link was up before it had addresses, so that the kernel did not tell of them.
  arp?.announce(ipv4Addresses);
}

/** Before it has addresses, because the link itself sends the probes. */
function setDeviceUp({ netns, ifname, owner }: AddCall<unknown>, lower: LowerDevice, { index, mac }: link.Link): void {
  try {
    link.setUp(netns.route, index);
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
    const refusal = error.withPurpose(`set "${ifname}" up`);
    if (error.code === "ENETDOWN") {
      const message = `Cannot set "${ifname}" up: its master ${quotedName(lower)} is down`;
      throw new CniError(Code.Internal, message, { details: `set it up first: ip link set ${lower.link.name} up` });
    }
    if (error.code !== "EADDRINUSE") throw refusal;
    throw mac === lower.link.mac
      ? new CniError(
        Code.Internal,
        `Cannot set "${ifname}" up: its master ${quotedName(lower)} has MAC address ${mac} too`,
      )
      : lowerDeviceInUseError(
        refusal,
        lower,
        (candidate) => candidate.link.mac === mac && candidate.link.alias !== formatAlias(owner),
      );
  }
}

/** Whether frames can leave the link. */
function hasCarrier({ netns }: AddCall<unknown>, lower: LowerDevice, device: link.Link): boolean {
  const lowerLink = link.get(lower.netns.route, lower.link.index);
  return link.isUp(lowerLink) && (link.get(netns.route, device.index).flags & IFF_LOWER_UP) !== 0;
}

function openArpProbe(
  { netns, log }: AddCall<unknown>,
  lower: LowerDevice,
  device: link.Link,
  probeFrom: "container" | "master",
): ArpSocket | undefined {
  const [probeNetns, probeLink] = probeFrom === "container" ? [netns, device] : [lower.netns, lower.link];
  if (!probeLink.mac) return undefined;
  try {
    return probeNetns.run<ArpSocket>(() => openArpSocket(probeLink.index, probeLink.mac as Mac));
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    log(`Cannot probe for address conflicts, continuing without: ${error.message}`);
    return undefined;
  }
}

/** Frames from a link to its own lower device are not delivered, so that this one would not reply. */
function rejectLowerDeviceAddresses(
  addresses: readonly Cidr[],
  { netns, link: { name, index }, configured }: LowerDevice,
): void {
  if (configured) rejectLowerDeviceAddresses(addresses, configured);
  const lowerAddresses = new Set(address.list(netns.route, { index }).map((candidate) => ipOf(candidate.address)));
  for (const candidate of addresses) {
    if (!lowerAddresses.has(ipOf(candidate))) continue;
    throw new CniError(Code.Internal, `Cannot use address ${candidate}: master "${name}" has it`);
  }
}

/** Another container of this host has the address, or another host, of which at most the MAC address is known. */
function addressInUseError(
  { ifname, owner }: AddCall<unknown>,
  lower: LowerDevice,
  { includesLowerDevice }: ConflictDetection,
  address: Ip | Cidr,
  mac?: Mac,
): CniError {
  // Where the lower device is not on the network, its other users are not.
  const upperDevices = includesLowerDevice ? listUpperDevices(lower.netns, lower.link.index) : [];
  const others = upperDevices.filter(({ link }) => link.alias !== formatAlias(owner));
  const hasAddress = ({ addresses }: UpperDevice) =>
    addresses.some((element) => element === address || ipOf(element) === address);
  const replyingDevice = others.find(({ link }) => mac !== undefined && link.mac === mac);
  // Each interface of a container answers for all of its addresses.
  const conflictingDevice = mac === undefined ? others.find(hasAddress) : replyingDevice &&
    (others.find((element) => element.netnsPath === replyingDevice.netnsPath && hasAddress(element)) ??
      replyingDevice);
  const conflictNames = [
    conflictingDevice ? describeUpperDevice(conflictingDevice) : "another host on the network",
    ...mac ? [`MAC address ${mac}`] : [],
  ];
  return new CniError(
    Code.Internal,
    `Cannot use address ${address} on "${ifname}" of master ${quotedName(lower)}: in use by ${
      conflictNames.join(", ")
    }`,
  );
}

/** The kernel keeps two ipvlans of one master from having the same address. */
function explainAddressInUse(error: unknown, lower: LowerDevice, addresses: readonly Cidr[]): unknown {
  if (!(error instanceof NetlinkError && error.code === "EADDRINUSE")) return error;
  const requestedAddresses = new Set(addresses.map(ipOf));
  const hasRequestedAddress = (device: UpperDevice) =>
    device.addresses.some((element) => requestedAddresses.has(ipOf(element)));
  return lowerDeviceInUseError(error, lower, hasRequestedAddress);
}
