/** Routes between container and host veth: the pair has no subnet, so each address needs a route. */
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

/** `gateway` is the host veth's address. */
export type IpWithGateway = IpConfig & { readonly gateway: Ip };

export const hasGateway = (ip: IpConfig): ip is IpWithGateway => ip.gateway !== undefined;

/** @throws {CniError} if an address lacks a gateway that the host can have */
export function requireHostGateways(ips: readonly IpConfig[], ipamType: string): IpWithGateway[] {
  return ips.map((ip) => {
    const { address, gateway } = ip;
    const refuse = (given: string): never => {
      throw new CniError(Code.InvalidConfig, `Cannot connect ${address}: IPAM plugin "${ipamType}" gave it ${given}`, {
        details: "the host's veth gets the gateway as its address; name one of the same family for every subnet",
      });
    };
    if (gateway === undefined) return refuse("no gateway");
    if (familyOf(gateway) !== familyOf(address)) return refuse(`gateway ${gateway}`);
    if (gateway === ipOf(address)) return refuse("itself as gateway");
    return { ...ip, gateway };
  });
}

export function gatewayPrefixes(ips: readonly IpWithGateway[]): Cidr[] {
  return [...new Set(ips.map(({ gateway }) => hostPrefix(gateway)))];
}

/** Each gateway directly, and each subnet by its gateway, from the container's first address there. */
export function connectedRoutes(ips: readonly IpWithGateway[]): InterfaceRoute[] {
  const routes = [
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
  ];
  return routes.filter(({ dst }, i) => routes.findIndex((earlier) => earlier.dst === dst) === i);
}

/** Other gateways of a subnet are on the link too: something behind the host may answer for them. */
export function resultRoutes(result: Result, ips: readonly IpWithGateway[]): InterfaceRoute[] {
  const isHostGateway = (gw: Ip) => ips.some(({ gateway }) => gateway === gw);
  const isInSubnet = (gw: Ip) =>
    ips.some(({ address }) => familyOf(address) === familyOf(gw) && containsIp(networkOf(address), gw));
  return routesWithGateways(result, ips).map(({ gw, ...route }) => ({
    ...route,
    ...gw && { gateway: gw, onlink: !isHostGateway(gw) && isInSubnet(gw) },
  }));
}
