/** Whether the host routes what containers of a bridge send: all of it goes there. */
import { familyOf } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import * as link from "../../ffi/route/link.ts";
import * as route from "../../ffi/route/route.ts";
import { findSysctl } from "../../ffi/sys/sysctl.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { AttachedPod } from "./pod.ts";

/** @see net/ipv4/route.c ip_mkroute_input(), net/ipv6/ip6_output.c ip6_forward() */
const FORWARDING = { 4: "net/ipv4/ip_forward", 6: "net/ipv6/conf/all/forwarding" } as const;

/** @throws {CniError} code 7 if nothing that the pod sends would arrive */
export function requireRouter(host: Netns, { ips }: AttachedPod, bridge: number): void {
  const { name } = link.get(host.route, bridge);
  const refusal = (problem: string, hint: string) =>
    new CniError(Code.InvalidConfig, `Cannot enforce policies on bridge "${name}": ${problem}`, {
      details: `the host routes what its containers send; ${hint}`,
    });
  for (const [i, match] of route.matchAll(host.route, ips).entries()) {
    if (match && isBeyondBridge(host, match, bridge)) continue;
    throw refusal(`the host has no route to ${ips[i]} by it`, 'set "isGateway" of "bridge"');
  }
  for (const family of new Set(ips.map(familyOf))) {
    if (host.run(() => findSysctl(FORWARDING[family])) !== "0") continue;
    throw refusal(`the host forwards no IPv${family}`, `set sysctl ${FORWARDING[family].replaceAll("/", ".")} to 1`);
  }
}

/** The gateway of a VLAN is on an interface above the bridge. */
function isBeyondBridge(host: Netns, { oif }: route.RouteMatch, bridge: number): boolean {
  return oif === bridge || oif !== undefined && link.find(host.route, oif)?.linkIndex === bridge;
}
