/**
 * The gateway that the host is for the containers of a bridge.
 *
 * @module
 */
import { checkFailedError } from "../lib/protocol/check_failed.ts";
import {
  type Cidr,
  compareIps,
  familyOf,
  type Ip,
  ipOf,
  networkOf,
  networksOverlap,
  nextIp,
  prefixLengthOf,
  toCidr,
} from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns.ts";
import { NetlinkError, withRequestPurpose } from "../../ffi/netlink/error.ts";
import { executeAll } from "../../ffi/netlink/socket.ts";
import * as address from "../../ffi/route/address.ts";
import * as link from "../../ffi/route/link.ts";
import { enableForwarding, enableIpv6 } from "../lib/links/sysctls.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { IpConfig, Result } from "../../spec/result.ts";
import type { RouteConfig } from "../../spec/schema.ts";

/** The addresses with a gateway for each: the subnet's first, where IPAM named none. @throws {CniError} when the subnet has no room for one */
export function withGateways(ips: readonly IpConfig[]): IpConfig[] {
  return ips.map((ip) => ip.gateway ? ip : { ...ip, gateway: firstAddressOf(ip.address) });
}

function firstAddressOf(containerAddress: Cidr): Ip {
  const first = nextIp(ipOf(networkOf(containerAddress)));
  const hasRoom = prefixLengthOf(containerAddress) <= (familyOf(containerAddress) === 4 ? 30 : 126);
  if (first && hasRoom && compareIps(first, ipOf(containerAddress)) !== 0) return first;
  throw new CniError(
    Code.InvalidConfig,
    `Cannot choose a gateway for ${containerAddress}: its subnet has no other first address`,
    {
      details: 'name a "gateway" in the ipam configuration, or set isGateway to false',
    },
  );
}

/** Adds a default route by the first gateway of each family that has none yet. */
export function withDefaultRoutes(result: Result): Result {
  const routes: RouteConfig[] = [...result.routes ?? []];
  for (const { gateway } of result.ips ?? []) {
    if (!gateway) continue;
    const dst = (familyOf(gateway) === 4 ? "0.0.0.0/0" : "::/0") as Cidr;
    if (!routes.some((route) => networkOf(route.dst) === dst && !route.table)) routes.push({ dst, gw: gateway });
  }
  return { ...result, routes };
}

/** Gives the host the gateways' addresses on `device` and lets it forward their packets. @throws {CniError} when another address is in the way */
export function setUpGateways(host: Netns, device: link.Link, ips: readonly IpConfig[], force: boolean): void {
  const wanted = gatewayAddresses(ips);
  if (wanted.length === 0) return;
  let present = address.list(host.route, { index: device.index }).map((cidr) => cidr.address);
  for (const cidr of wanted) {
    if (present.includes(cidr)) continue;
    const conflicting = present.filter((other) => isConflicting(other, cidr) && !wanted.includes(other));
    if (conflicting.length > 0 && !force) throw addressConflictError(device, cidr, conflicting);
    if (familyOf(cidr) === 6) host.run(() => enableIpv6(host, device.name!));
    removeAddresses(host, device, conflicting);
    addGatewayAddress(host, device, cidr);
    present = [...present.filter((other) => !conflicting.includes(other)), cidr];
  }
  enableForwarding(host, [...new Set(wanted.map(familyOf))]);
}

/** The gateways' addresses with their prefix lengths, each once. */
function gatewayAddresses(ips: readonly IpConfig[]): Cidr[] {
  return [...new Set(ips.flatMap(({ gateway, address }) => gateway ? [gatewayCidr(gateway, address)] : []))];
}

/** A bridge has one IPv4 network, and IPv6 networks that do not overlap. Link-local addresses are nobody's gateway. */
function isConflicting(present: Cidr, wanted: Cidr): boolean {
  if (familyOf(present) !== familyOf(wanted)) return false;
  return familyOf(wanted) === 4 || networksOverlap(present, wanted);
}

const addressConflictError = (device: link.Link, wanted: Cidr, present: readonly Cidr[]) =>
  new CniError(
    Code.InvalidConfig,
    `Cannot give "${device.name}" the gateway address ${wanted}: it has ${present.join(", ")} already`,
    {
      details: "set forceAddress to replace it, or give this network a bridge of its own",
    },
  );

/** Removing an IPv4 address may take those of its subnet along, so that a later one is gone already. */
function removeAddresses(host: Netns, device: link.Link, addresses: readonly Cidr[]): void {
  for (const cidr of addresses) {
    try {
      withRequestPurpose(
        () => `remove address ${cidr} from "${device.name}"`,
        () => address.remove(host.route, device.index, cidr),
      );
    } catch (error) {
      if (!(error instanceof NetlinkError && error.code === "EADDRNOTAVAIL")) throw error;
    }
  }
}

function addGatewayAddress(host: Netns, device: link.Link, gateway: Cidr): void {
  try {
    withRequestPurpose(
      () => `add address ${gateway} to "${device.name}"`,
      () => executeAll(host.route, [address.addRequest(device.index, gateway, { noDad: true })]),
    );
  } catch (error) {
    // Another container's ADD was faster.
    if (!(error instanceof NetlinkError && error.code === "EEXIST")) throw error;
  }
  // Its own address, set once more, is one that was chosen: from now on it does not follow the ports'.
  if (device.mac) link.set(host.route, device.name!, { mac: device.mac });
}

/** Checks that `device` has the gateways' addresses. @throws {CniError} on the first that is missing */
export function checkGateways(host: Netns, device: link.Link, ips: readonly IpConfig[]): void {
  const present = address.list(host.route, { index: device.index }).map((found) => found.address);
  for (const wanted of gatewayAddresses(ips)) {
    if (!present.includes(wanted)) {
      throw checkFailedError(`"${device.name}" lacks gateway address ${wanted}`);
    }
  }
}

/** The address `gateway` as it stands on the host's side of the subnet that `container` is in. */
export function gatewayCidr(gateway: Ip, container: Cidr): Cidr {
  return toCidr(gateway, prefixLengthOf(container));
}
