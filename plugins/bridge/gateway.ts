/**
 * The gateway that the host is for the containers of a bridge.
 *
 * @module
 */
import {
  type Cidr,
  compareIp,
  familyOf,
  type Ip,
  ipOf,
  networkOf,
  nextIp,
  overlaps,
  prefixLengthOf,
} from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns.ts";
import { NetlinkError, purposed } from "../../ffi/netlink/error.ts";
import { executeAll } from "../../ffi/netlink/socket.ts";
import * as address from "../../ffi/route/address.ts";
import * as link from "../../ffi/route/link.ts";
import { onSubnet } from "../lib/links/interface.ts";
import { requireForwarding, requireIpv6 } from "../lib/links/sysctls.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { IpConfig, Result, RouteConfig } from "../../spec/result.ts";

/** The addresses with a gateway for each: the subnet's first, where IPAM named none. @throws {CniError} when the subnet has no room for one */
export function withGateways(ips: readonly IpConfig[]): IpConfig[] {
  return ips.map((ip) => ip.gateway ? ip : { ...ip, gateway: firstOf(ip.address) });
}

function firstOf(own: Cidr): Ip {
  const first = nextIp(ipOf(networkOf(own)));
  const roomy = prefixLengthOf(own) <= (familyOf(own) === 4 ? 30 : 126);
  if (first && roomy && compareIp(first, ipOf(own)) !== 0) return first;
  throw new CniError(Code.InvalidConfig, `Cannot choose a gateway for ${own}: its subnet has no other first address`, {
    details: 'name a "gateway" in the ipam configuration, or set isGateway to false',
  });
}

/** Adds a default route by the first gateway of each family that has none yet. */
export function withDefaultRoutes(result: Result): Result {
  const routes: RouteConfig[] = [...result.routes ?? []];
  for (const { gateway } of result.ips ?? []) {
    if (!gateway) continue;
    const dst = (familyOf(gateway) === 4 ? "0.0.0.0/0" : "::/0") as Cidr;
    if (!routes.some((each) => networkOf(each.dst) === dst && !each.table)) routes.push({ dst, gw: gateway });
  }
  return { ...result, routes };
}

/** Gives the host the gateways' addresses on `device` and lets it forward their packets. @throws {CniError} when another address is in the way */
export function setUpGateways(host: Netns, device: link.Link, ips: readonly IpConfig[], force: boolean): void {
  const wanted = gatewayAddresses(ips);
  if (wanted.length === 0) return;
  let present = address.list(host.route, { index: device.index }).map((each) => each.address);
  for (const each of wanted) {
    if (present.includes(each)) continue;
    const others = present.filter((other) => conflicts(other, each) && !wanted.includes(other));
    if (others.length > 0 && !force) throw addressConflict(device, each, others);
    if (familyOf(each) === 6) host.run(() => requireIpv6(host, device.name!));
    removeAddresses(host, device, others);
    addGateway(host, device, each);
    present = [...present.filter((other) => !others.includes(other)), each];
  }
  requireForwarding(host, [...new Set(wanted.map(familyOf))]);
}

/** The gateways' addresses with their prefix lengths, each once. */
function gatewayAddresses(ips: readonly IpConfig[]): Cidr[] {
  return [...new Set(ips.flatMap(({ gateway, address }) => gateway ? [onSubnet(gateway, address)] : []))];
}

/** A bridge has one IPv4 network, and IPv6 networks that do not overlap. Link-local addresses are nobody's gateway. */
function conflicts(present: Cidr, wanted: Cidr): boolean {
  if (familyOf(present) !== familyOf(wanted)) return false;
  return familyOf(wanted) === 4 || overlaps(present, wanted);
}

const addressConflict = (device: link.Link, wanted: Cidr, others: readonly Cidr[]) =>
  new CniError(
    Code.InvalidConfig,
    `Cannot give "${device.name}" the gateway address ${wanted}: it has ${others.join(", ")} already`,
    {
      details: "set forceAddress to replace it, or give this network a bridge of its own",
    },
  );

/** Removing an IPv4 address may take those of its subnet along, so that a later one is gone already. */
function removeAddresses(host: Netns, device: link.Link, addresses: readonly Cidr[]): void {
  for (const each of addresses) {
    try {
      purposed(
        () => `remove address ${each} from "${device.name}"`,
        () => address.remove(host.route, device.index, each),
      );
    } catch (error) {
      if (!(error instanceof NetlinkError && error.code === "EADDRNOTAVAIL")) throw error;
    }
  }
}

function addGateway(host: Netns, device: link.Link, gateway: Cidr): void {
  try {
    purposed(
      () => `add address ${gateway} to "${device.name}"`,
      () => executeAll(host.route, [address.addRequest(device.index, gateway, { withoutDad: true })]),
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
  const present = address.list(host.route, { index: device.index }).map((each) => each.address);
  for (const wanted of gatewayAddresses(ips)) {
    if (!present.includes(wanted)) {
      throw new CniError(Code.Internal, `Check failed: "${device.name}" lacks gateway address ${wanted}`);
    }
  }
}
