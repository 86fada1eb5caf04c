/** CHECK of `ptp`: what has changed since the ADD. ADD and DEL do not load it. @module */
import { ipOf } from "../../ffi/address.ts";
import * as link from "../../ffi/route/link.ts";
import { expectConfigured, expectRoute, requireContainerInterface } from "../lib/links/check_interface.ts";
import { ipsOf } from "../lib/links/configure_interface.ts";
import { checkMasqueraded } from "../lib/veth/masqueraded_veth.ts";
import { checkForwarding, distinctFamilies } from "../lib/links/reachability.ts";
import { checkVethPair } from "../lib/veth/veth_pair.ts";
import { checkWanted } from "../lib/links/wanted_differences.ts";
import { checkFailedError, expectEqual } from "../lib/protocol/check_failed.ts";
import { type CheckCall, requirePrevResult } from "../lib/protocol/plugin.ts";
import { requireIpam } from "../lib/protocol/require_ipam.ts";
import type { PtpConfig } from "./config.ts";
import { hasHostRoute } from "./host_veth.ts";
import { connectedRoutes, type IpWithGateway, requireHostGateways } from "./routes.ts";
import { ptpWanted } from "./wanted.ts";

/** @throws {CniError} on the first difference */
export function checkPtpAttachment(call: CheckCall<PtpConfig>): void {
  const { config, host, netns, ifname } = call;
  const ipam = requireIpam(call);
  ipam.check();
  const result = requirePrevResult(call, "ptp");
  requireContainerInterface(result, ifname, call.sandbox);
  const containerVeth = expectConfigured(netns, ifname, result);
  const hostVeth = checkVethPair(call, containerVeth);
  const ips = requireHostGateways(ipsOf(result, ifname), ipam.type);
  for (const { dst, gateway } of connectedRoutes(ips)) {
    expectRoute(netns, containerVeth, { dst, ...gateway ? { gw: gateway } : {} });
  }
  checkHostVeth(call, hostVeth, ips);
  checkForwarding(host, distinctFamilies(ips.map(({ gateway }) => gateway)));
  if (config.mtu) {
    for (const veth of [containerVeth, hostVeth]) expectEqual(`MTU of "${veth.name}"`, veth.mtu, config.mtu);
  }
  checkMasqueraded(call, ips);
}

function checkHostVeth(call: CheckCall<unknown>, hostVeth: link.Link, ips: readonly IpWithGateway[]): void {
  const { host } = call;
  const { index, name = "" } = hostVeth;
  expectEqual(`operational state of "${name}"`, link.operationalState(hostVeth), "up");
  checkWanted(call, ptpWanted(name, ips), { host: [hostVeth] });
  for (const ip of ips) {
    const container = ipOf(ip.address);
    if (!hasHostRoute(host, container, index)) {
      throw checkFailedError(`the host lacks the route to ${container} dev "${name}"`);
    }
  }
}
