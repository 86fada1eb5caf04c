/**
 * How packets find from the container to the host's end of the cable and back: no subnet is on it, so that every address has its own way.
 *
 * @module
 */
import { type Cidr, cidr, contains, familyOf, type Ip, ipOf, networkOf, prefixLengthOf } from "../../ffi/address.ts";
import { RT_SCOPE_LINK } from "../../ffi/route/uapi.ts";
import { routesOf, type Way } from "../lib/links/interface.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { IpConfig, Result } from "../../spec/result.ts";

/** An address of the container, with the one that the host's end has for it. */
export type GatewayedIp = IpConfig & { readonly gateway: Ip };

/** The addresses, each with a gateway. @throws {CniError} if one has none, or none that the host can have */
export function requireGateways(ips: readonly IpConfig[], ipamType: string): GatewayedIp[] {
  return ips.map((ip) => {
    const { address, gateway } = ip;
    if (gateway === undefined) throw unusable(ipamType, address, "no gateway");
    if (familyOf(gateway) !== familyOf(address)) throw unusable(ipamType, address, `gateway ${gateway}`);
    if (gateway === ipOf(address)) throw unusable(ipamType, address, "itself as gateway");
    return { ...ip, gateway };
  });
}

const unusable = (ipamType: string, address: Cidr, what: string) =>
  new CniError(Code.InvalidConfig, `Cannot connect ${address}: IPAM plugin "${ipamType}" gave it ${what}`, {
    details:
      "the host's end of the cable takes the gateway as its address; name one of the same family for every subnet",
  });

/** An address alone, as a destination. */
export function hostOf(address: Ip): Cidr {
  return cidr(address, familyOf(address) === 4 ? 32 : 128);
}

/** The addresses that the host's end has, each once. */
export function gatewaysOf(ips: readonly GatewayedIp[]): Cidr[] {
  return [...new Set(ips.map(({ gateway }) => hostOf(gateway)))];
}

/** From the container: to each gateway directly, and to each subnet by its gateway, as there are no neighbours. Of two addresses of a subnet the first is what packets are from. */
export function waysOf(ips: readonly GatewayedIp[]): Way[] {
  const seen = new Set<Cidr>();
  const isNew = ({ dst }: Way) => !seen.has(dst) && seen.add(dst);
  return [
    ...ips.map(({ address, gateway }): Way => ({ dst: hostOf(gateway), source: ipOf(address), scope: RT_SCOPE_LINK })),
    ...ips.filter(({ address }) => !isSingle(address)).map(({ address, gateway }): Way => ({
      dst: networkOf(address),
      gateway,
      source: ipOf(address),
    })),
  ].filter(isNew);
}

/** The routes of a result. By another gateway of a subnet the cable leads as well: what is behind the host may answer for it. */
export function routesBy(result: Result, ips: readonly GatewayedIp[]): Way[] {
  const isOwn = (gw: Ip) => ips.some(({ gateway }) => gateway === gw);
  const isNear = (gw: Ip) =>
    ips.some(({ address }) => familyOf(address) === familyOf(gw) && contains(networkOf(address), gw));
  return routesOf(result, ips).map(({ gw, ...each }) => ({
    ...each,
    ...gw && { gateway: gw, onlink: !isOwn(gw) && isNear(gw) },
  }));
}

/** True for an address that is a subnet of its own. */
function isSingle(address: Cidr): boolean {
  return prefixLengthOf(address) === prefixLengthOf(hostOf(ipOf(address)));
}
