import {
  type Cidr,
  compareIps,
  containsIp,
  familyOf,
  type Ip,
  ipOf,
  networkOf,
  networksOverlap,
  nextIp,
  parseCidr,
  parseIp,
  prefixLengthOf,
  toCidr,
} from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { executeAll } from "../../ffi/netlink/socket.ts";
import * as address from "../../ffi/route/address.ts";
import * as link from "../../ffi/route/link.ts";
import { ignoreErrors, withPurpose } from "../../ffi/sys/error.ts";
import { describeOwner, parseAlias } from "../lib/model/owner.ts";
import type { AddCall } from "../lib/protocol/plugin.ts";
import { refuseHostAddresses } from "../lib/links/address_claim.ts";
import { refuseOverlap, wantedOf } from "../lib/links/host_networks.ts";
import { isNewLink } from "../lib/links/created_link.ts";
import { enableForwarding } from "../lib/links/forwarding.ts";
import { enableIpv6 } from "../lib/links/sysctls.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { IpConfig, Result } from "../../spec/result.ts";
import { findValue, type JsonObject, type RouteConfig } from "../../spec/schema.ts";
import type { BridgeConfig } from "./config.ts";

export function withGateways(ips: readonly IpConfig[]): IpConfig[] {
  return ips.map((ip) => ip.gateway ? ip : { ...ip, gateway: firstAddressOf(ip.address) });
}

function firstAddressOf(containerAddress: Cidr): Ip {
  const first = nextIp(ipOf(networkOf(containerAddress)));
  const hasRoom = prefixLengthOf(containerAddress) <= (familyOf(containerAddress) === 4 ? 30 : 126);
  if (first && hasRoom && compareIps(first, ipOf(containerAddress)) !== 0) return first;
  const message = `Cannot choose a gateway for ${containerAddress}: its subnet has no other first address`;
  throw new CniError(Code.InvalidConfig, message, {
    details: 'name a "gateway" in the ipam configuration, or set isGateway to false',
  });
}

export function refuseUnreachableGateways(ips: readonly IpConfig[]): void {
  for (const { address, gateway } of ips) {
    if (gateway === undefined) continue;
    if (gateway === ipOf(address)) throw unusableGatewayError(gateway, address, "that is the container's own address");
    if (!isInSubnetOf(address, gateway)) {
      throw unusableGatewayError(gateway, address, `it is outside ${networkOf(address)}`);
    }
  }
}

/**
 * Refuses host-local ranges if every address of a set would get a gateway outside its subnet.
 *
 * @param raw a configuration that host-local accepts
 * @throws {CniError}
 */
export function refuseUnreachableRangeGateways(raw: JsonObject): void {
  const ipam = findValue(raw, "ipam") as JsonObject;
  const sets = [[ipam], ...(findValue(ipam, "ranges") as JsonObject[][] | undefined) ?? []];
  for (const set of sets) {
    const unusable = set.flatMap((range) => {
      const [subnet, gateway] = ["subnet", "gateway"].map((key) => findValue(range, key) as string | undefined);
      if (!subnet || !gateway || isInSubnetOf(parseCidr(subnet), parseIp(gateway))) return [];
      return [{ subnet: parseCidr(subnet), gateway: parseIp(gateway) }];
    });
    // The address may come from another range.
    if (unusable.length < set.length) continue;
    const [first] = unusable;
    if (first) throw unusableGatewayError(first.gateway, first.subnet, `it is outside ${first.subnet}`);
  }
}

function isInSubnetOf(address: Cidr, gateway: Ip): boolean {
  return familyOf(gateway) === familyOf(address) && containsIp(networkOf(address), gateway);
}

function unusableGatewayError(gateway: Ip, address: Cidr, problem: string): CniError {
  return new CniError(Code.InvalidConfig, `Cannot use gateway ${gateway} for ${address}: ${problem}`, {
    details: "name another gateway in the ipam configuration, or set isGateway and isDefaultGateway to false",
  });
}

export function withDefaultRoutes(result: Result): Result {
  const routes: RouteConfig[] = [...result.routes ?? []];
  for (const { gateway } of result.ips ?? []) {
    if (!gateway) continue;
    const dst = (familyOf(gateway) === 4 ? "0.0.0.0/0" : "::/0") as Cidr;
    if (!routes.some((route) => networkOf(route.dst) === dst && !route.table)) routes.push({ dst, gw: gateway });
  }
  return { ...result, routes };
}

/**
 * IFA_PROTO of our gateways: the kernel uses numbers up to 3, iproute2 names no others. Kernels before 5.18 ignore it,
 * so there only `forceAddress` replaces an address.
 */
export const GATEWAY_PROTOCOL = 0x43;

export interface GatewayPlace {
  readonly bridge: link.Link;
  /** The container's own port, not counted as a user of a gateway. */
  readonly port: string;
  /** The bridge, or the host's interface in a VLAN. */
  readonly device: link.Link;
}

/**
 * Gives the host the gateways' addresses, removes former ones and turns forwarding on. A failed ADD undoes this, except
 * for addresses that another attachment uses by then.
 *
 * The container must have its addresses already. One ADD may need a gateway that another removes. Then the second sees
 * the first's container, or the first sees the gateway gone.
 *
 * @throws {CniError} if another address conflicts, or the host itself is in the network
 */
export function setUpGateways(call: AddCall<BridgeConfig>, place: GatewayPlace, ips: readonly IpConfig[]): void {
  const { host, config, log } = call;
  const { device } = place;
  const wanted = gatewayAddresses(ips);
  let present = address.list(host.route, { index: device.index });
  const isNew = !wanted.every((cidr) => present.some((entry) => entry.address === cidr));
  if (!config.allowRouteOverlap) refuseOverlap(host, device, wantedOf(ips), isNew);
  for (const cidr of wanted) {
    if (present.some((entry) => entry.address === cidr)) continue;
    const others = present.filter((entry) =>
      familyOf(entry.address) === familyOf(cidr) && !wanted.includes(entry.address)
    );
    const conflicting = others.filter((entry) => isConflicting(entry.address, cidr));
    const refuse = () => !config.forceAddress && refuseConflicts(host, place, cidr, conflicting);
    refuse();
    const isUsed = (entry: address.InterfaceAddress) => findGatewayUser(host, place, entry.address) !== undefined;
    const isFormer = (entry: address.InterfaceAddress) => entry.protocol === GATEWAY_PROTOCOL && !isUsed(entry);
    const former = others.filter((entry) => !conflicting.includes(entry) && isFormer(entry));
    if (familyOf(cidr) === 6) host.run(() => enableIpv6(host, device.name!));
    for (const entry of [...conflicting, ...former]) replaceAddress(call, device, entry);
    addGateway(call, place, cidr);
    // Another attachment may have relied on an address that is gone.
    refuse();
    const replaced = [...conflicting];
    for (const entry of former) {
      if (isUsed(entry)) addAddress(host, device, entry.address, GATEWAY_PROTOCOL);
      else replaced.push(entry);
    }
    if (replaced.length > 0) {
      const formerAddresses = replaced.map((entry) => entry.address).join(", ");
      log(`Gave "${device.name}" gateway address ${cidr} in place of ${formerAddresses}`);
    }
    present = present.filter((entry) => !replaced.includes(entry));
  }
  const addresses = ips.map((ip) => ip.address);
  refuseHostAddresses(call.owner, device.name!, [...present.map((entry) => entry.address), ...wanted], addresses);
  enableForwarding(host, [...new Set(wanted.map(familyOf))], log);
}

export function gatewayAddresses(ips: readonly IpConfig[]): Cidr[] {
  const cidrs = ips.flatMap(({ gateway, address }) => gateway ? [toCidr(gateway, prefixLengthOf(address))] : []);
  return [...new Set(cidrs)];
}

/** A bridge has one IPv4 network. Its IPv6 networks must not overlap. */
function isConflicting(present: Cidr, wanted: Cidr): boolean {
  return familyOf(wanted) === 4 || networksOverlap(present, wanted);
}

/** @throws {CniError} if an address is not ours, or is an attachment's gateway */
function refuseConflicts(
  host: Netns,
  place: GatewayPlace,
  wanted: Cidr,
  conflicting: readonly address.InterfaceAddress[],
): void {
  const device = place.device.name!;
  const occupied = conflicting.flatMap(({ address: present, protocol }) => {
    const user = findGatewayUser(host, place, present);
    if (user) return [{ present, remedy: `${present} is the gateway of ${describeUser(user)}` }];
    if (protocol === GATEWAY_PROTOCOL) return [];
    return [{
      present,
      remedy: `if no remote login needs it, remove it with "ip address del ${present} dev ${device}"`,
    }];
  });
  if (occupied.length === 0) return;
  const present = occupied.map((entry) => entry.present).join(", ");
  const remedies = occupied.map(({ remedy }) => remedy).join("; ");
  const message = `Cannot give "${device}" the gateway address ${wanted}: it has ${present} already`;
  throw new CniError(Code.InvalidConfig, message, {
    details: `${remedies}; or set forceAddress to replace it, or give this network a bridge of its own`,
  });
}

function describeUser({ alias, name }: link.Link): string {
  const owner = parseAlias(alias);
  return owner ? describeOwner(owner) : `the container behind "${name}"`;
}

/** A port whose container has an address in the gateway's subnet. */
export function findGatewayUser(
  host: Netns,
  { bridge, port: ownPort }: GatewayPlace,
  gateway: Cidr,
): link.Link | undefined {
  return link.list(host.route, { master: bridge.index }).find(({ name, linkIndex: index, linkNetnsId: netnsId }) => {
    if (name === ownPort || index === undefined || netnsId === undefined) return false;
    // EINVAL: the namespace is gone.
    const addresses = ignoreErrors(["EINVAL"], () => address.list(host.route, { index, netnsId })) ?? [];
    return addresses.some((entry) => networksOverlap(entry.address, gateway));
  });
}

function replaceAddress(
  { host, undo }: AddCall<BridgeConfig>,
  device: link.Link,
  { address: cidr, protocol }: address.InterfaceAddress,
): void {
  undo.defer(() => addAddress(host, device, cidr, protocol));
  removeAddress(host, device, cidr);
}

function addGateway({ host, undo }: AddCall<BridgeConfig>, place: GatewayPlace, gateway: Cidr): void {
  const { device } = place;
  if (!addAddress(host, device, gateway, GATEWAY_PROTOCOL)) return;
  undo.defer(() => {
    if (findGatewayUser(host, place, gateway)) return;
    removeAddress(host, device, gateway);
    // Another ADD may have seen the address before its removal.
    if (findGatewayUser(host, place, gateway)) addAddress(host, device, gateway, GATEWAY_PROTOCOL);
  });
  if (isNewLink(device)) return;
  // An address that is set, even to the same value, stops following the ports'. Without ports, the bridge had none.
  const { mac } = device.mac === NO_MAC ? link.get(host.route, device.index) : device;
  if (mac) link.set(host.route, device.index, { mac });
}

const NO_MAC = "00:00:00:00:00:00";

/** @returns false if another ADD was faster */
function addAddress(host: Netns, device: link.Link, cidr: Cidr, protocol: number): boolean {
  const request = address.addRequest(device.index, cidr, { noDad: true, protocol });
  const add = () => {
    withPurpose(`add address ${cidr} to "${device.name}"`, () => executeAll(host.route, [request]));
    return true;
  };
  return ignoreErrors(["EEXIST"], add) ?? false;
}

/** Removing an IPv4 address may remove others of its subnet. */
function removeAddress(host: Netns, device: link.Link, cidr: Cidr): void {
  ignoreErrors(["EADDRNOTAVAIL"], () => address.remove(host.route, device.index, cidr));
}
