import { type Cidr, familyOf, type Ip, ipOf } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import * as address from "../../ffi/route/address.ts";
import * as link from "../../ffi/route/link.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { Result } from "../../spec/result.ts";
import { containerIps } from "../lib/links/container_ips.ts";
import { isInSubnetOf, type NameServer } from "./record.ts";

export function containerAddresses(result: Result, ifname: string): Cidr[] {
  return [...new Set(containerIps(result, ifname).map(({ address }) => address))];
}

/**
 * The host's addresses in the container's subnets, and its gateways: there it can ask.
 *
 * @throws {CniError} if there is none
 */
export function findServers(
  host: Netns,
  network: string,
  { ips = [], interfaces = [] }: Result,
  addresses: readonly Cidr[],
): NameServer[] {
  const names = interfaces.filter(({ sandbox }) => !sandbox).map(({ name }) => name);
  // In the order in which the kernel lists all.
  const indexes = [...new Set(names.flatMap((name) => link.find(host.route, name)?.index ?? []))].sort((a, b) => a - b);
  const gateways = ips.flatMap(({ gateway }) => gateway ?? []);
  const isUsable = (ip: Ip) => gateways.includes(ip) || isInSubnetOf(addresses, ip);
  // Results before version 0.3.0 have no interfaces.
  const present = indexes.length === 0
    ? address.list(host.route)
    : indexes.flatMap((index) => ignoreErrors(["ENODEV"], () => address.list(host.route, { index })) ?? []);
  // IPv4 first, as the kernel lists all.
  const found = present.filter((entry) => isUsable(ipOf(entry.address)))
    .sort((a, b) => familyOf(a.address) - familyOf(b.address));
  if (found.length === 0) throw noServerAddressError(network, names, addresses);
  return found.map((entry) => ({
    address: ipOf(entry.address),
    device: link.get(host.route, entry.index).name ?? "",
  }));
}

function noServerAddressError(network: string, names: readonly string[], addresses: readonly Cidr[]): CniError {
  const where = names.length === 0 ? "the host" : names.map((name) => `"${name}"`).join(" and ");
  const subnets = addresses.length === 0 ? "the container has no address" : `the container has ${addresses.join(", ")}`;
  return new CniError(Code.InvalidConfig, `Cannot serve names of network "${network}": ${where} has no address in it`, {
    details: `${subnets}; "bridge" gives its bridge one with "isGateway": true`,
  });
}
