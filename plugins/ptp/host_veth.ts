import { familyOf, hostPrefix, type Ip, ipOf } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import { executeAll } from "../../ffi/netlink/socket.ts";
import * as address from "../../ffi/route/address.ts";
import * as link from "../../ffi/route/link.ts";
import * as route from "../../ffi/route/route.ts";
import { withPurpose } from "../../ffi/sys/error.ts";
import { RT_SCOPE_HOST, RT_TABLE_MAIN, RTN_UNICAST } from "../../ffi/route/uapi.ts";
import { AF_INET, AF_INET6 } from "../../ffi/sys/uapi.ts";
import { enableForwarding } from "../lib/links/forwarding.ts";
import { tryMatchAll } from "../lib/links/host_networks.ts";
import { enableIpv6 } from "../lib/links/sysctls.ts";
import { describeOwner, parseAlias } from "../lib/model/owner.ts";
import type { AddCall } from "../lib/protocol/plugin.ts";
import { CniError, Code } from "../../spec/error.ts";
import { gatewayPrefixes, type IpWithGateway } from "./routes.ts";

/** Gives the host veth the gateways' addresses and routes to the container. @throws {CniError} if the host has other routes */
export function setUpHostVeth(
  { host, log }: Pick<AddCall<unknown>, "host" | "log">,
  { index, name = "" }: link.Link,
  ips: readonly IpWithGateway[],
): void {
  const gateways = gatewayPrefixes(ips);
  const families = [...new Set(gateways.map(familyOf))];
  if (families.includes(6)) host.run(() => enableIpv6(host, name));
  enableForwarding(host, families, log);
  // Nobody else can have them, and the container's packets must not wait for duplicate address detection.
  const addresses = gateways.map((gateway) => address.addRequest(index, gateway, { noDad: true }));
  withPurpose(
    `give "${name}" the gateways ${gateways.join(", ")}`,
    () => executeAll(host.route, addresses),
  );
  for (const { address: containerAddress } of ips) addHostRoute(host, index, ipOf(containerAddress));
}

function addHostRoute(host: Netns, index: number, container: Ip): void {
  const dst = hostPrefix(container);
  try {
    executeAll(host.route, [route.addExclusiveRequest({ dst, oif: index, scope: RT_SCOPE_HOST })]);
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
    throw error.code === "EEXIST" ? routeExistsError(host, container) : error.withPurpose(`add route to ${dst}`);
  }
}

function routeExistsError(host: Netns, ip: Ip): CniError {
  const oif = listHostRoutes(host, ip)[0]?.oif;
  const device = oif === undefined ? undefined : link.find(host.route, oif);
  const owner = parseAlias(device?.alias);
  const target = device?.name === undefined ? "elsewhere" : `to "${device.name}"`;
  const container = owner ? `, to ${describeOwner(owner)}` : "";
  return new CniError(Code.Internal, `Cannot connect ${ip}: the host routes packets for it ${target}${container}`, {
    details: "give each container its own address",
  });
}

/** Whether the host has a route to this address alone by this link. Others are read only where the kernel takes none or another. */
export function hasHostRoute(host: Netns, container: Ip, link: number): boolean {
  const match = tryMatchAll(host, [container])?.[0];
  const isOfMain = match?.type === RTN_UNICAST && match.table === RT_TABLE_MAIN;
  if (isOfMain && match.dst === hostPrefix(container) && match.oif === link) return true;
  return listHostRoutes(host, container).some(({ oif }) => oif === link);
}

/** The host's routes to this address alone. */
function listHostRoutes(host: Netns, container: Ip): route.UnicastRoute[] {
  const family = familyOf(container) === 4 ? AF_INET : AF_INET6;
  return route.list(host.route, family, RT_TABLE_MAIN).filter(({ dst }) => dst === hostPrefix(container));
}
