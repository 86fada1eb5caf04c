/**
 * Routes between the container and the host veth: the pair has no subnet, so every address needs a route of its own.
 *
 * @module
 */
import {
  type Cidr,
  containsIp,
  familyOf,
  hostPrefix,
  type Ip,
  ipOf,
  isHostPrefix,
  networkOf,
} from "../../ffi/address.ts";
import { RT_SCOPE_LINK } from "../../ffi/route/uapi.ts";
import { type InterfaceRoute, routesWithGateways } from "../lib/links/configure_interface.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { IpConfig, Result } from "../../spec/result.ts";

/** An address of the container, with the one that the host's end has for it. */
export type IpWithGateway = IpConfig & { readonly gateway: Ip };

/** The addresses, each with a gateway. @throws {CniError} if one has none, or none that the host can have */
export function requireHostGateways(ips: readonly IpConfig[], ipamType: string): IpWithGateway[] {
  return ips.map((ip) => {
    const { address, gateway } = ip;
    if (gateway === undefined) throw unusableGatewayError(ipamType, address, "no gateway");
    if (familyOf(gateway) !== familyOf(address)) throw unusableGatewayError(ipamType, address, `gateway ${gateway}`);
    if (gateway === ipOf(address)) throw unusableGatewayError(ipamType, address, "itself as gateway");
    return { ...ip, gateway };
  });
}

const unusableGatewayError = (ipamType: string, address: Cidr, what: string) =>
  new CniError(Code.InvalidConfig, `Cannot connect ${address}: IPAM plugin "${ipamType}" gave it ${what}`, {
    details: "the host's veth gets the gateway as its address; name one of the same family for every subnet",
  });

/** The addresses that the host's end has, each once. */
export function gatewayPrefixes(ips: readonly IpWithGateway[]): Cidr[] {
  return [...new Set(ips.map(({ gateway }) => hostPrefix(gateway)))];
}

/** From the container: to each gateway directly, and to each subnet by its gateway, as there are no neighbours. Of two addresses of a subnet the first is what packets are from. */
export function connectedRoutes(ips: readonly IpWithGateway[]): InterfaceRoute[] {
  const seen = new Set<Cidr>();
  const isNew = ({ dst }: InterfaceRoute) => !seen.has(dst) && seen.add(dst);
  return [
    ...ips.map(({ address, gateway }): InterfaceRoute => ({
      dst: hostPrefix(gateway),
      prefsrc: ipOf(address),
      scope: RT_SCOPE_LINK,
    })),
    ...ips.filter(({ address }) => !isHostPrefix(address)).map(({ address, gateway }): InterfaceRoute => ({
      dst: networkOf(address),
      gateway,
      prefsrc: ipOf(address),
    })),
  ].filter(isNew);
}

/** The routes of a result. Another gateway of a subnet is reached through the host veth too: something behind the host may answer for it. */
export function resultRoutes(result: Result, ips: readonly IpWithGateway[]): InterfaceRoute[] {
  const isHostGateway = (gw: Ip) => ips.some(({ gateway }) => gateway === gw);
  const isInSubnet = (gw: Ip) =>
    ips.some(({ address }) => familyOf(address) === familyOf(gw) && containsIp(networkOf(address), gw));
  return routesWithGateways(result, ips).map(({ gw, ...route }) => ({
    ...route,
    ...gw && { gateway: gw, onlink: !isHostGateway(gw) && isInSubnet(gw) },
  }));
}
