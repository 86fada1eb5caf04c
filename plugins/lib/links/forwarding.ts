/** Whether the host forwards packets between its links. @module */
import { familyOf, prefixLengthOf } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import * as address from "../../../ffi/route/address.ts";
import * as link from "../../../ffi/route/link.ts";
import * as route from "../../../ffi/route/route.ts";
import { IFA_F_PERMANENT, RT_SCOPE_UNIVERSE, RT_TABLE_MAIN } from "../../../ffi/route/uapi.ts";
import { ignoreErrors } from "../../../ffi/sys/error.ts";
import { AF_INET6 } from "../../../ffi/sys/uapi.ts";
import { ensureSysctl, findSysctl, sysctlWord } from "../../../ffi/sys/sysctl.ts";
import { shellCommand } from "../../../spec/shell_command.ts";
import { parseAlias } from "../model/owner.ts";
import { isCreatedHere, isNewLink } from "./created_link.ts";
import { requireSysctl } from "./sysctls.ts";

type Family = 4 | 6;

export const FORWARDING: Readonly<Record<Family, string>> = {
  4: "net/ipv4/ip_forward",
  6: "net/ipv6/conf/all/forwarding",
};

/** The kernel takes default routes from routers. 1: only while the host does not forward, 2: always. */
export const acceptRa = (ifname: string): string => `net/ipv6/conf/${ifname}/accept_ra`;

/** @throws {CniError} if forwarding is off and cannot be turned on */
export function enableForwarding(host: Netns, families: readonly Family[], log: (message: string) => void): void {
  host.run(() => {
    if (families.includes(4)) requireSysctl(FORWARDING[4], "1");
    if (families.includes(6)) requireSysctl(FORWARDING[6], "1", () => keepAdvertisedRoutes(host, log));
  });
}

/** @see net/ipv6/addrconf.c addrconf_fixup_forwarding(), net/ipv6/route.c rt6_purge_dflt_routers() */
function keepAdvertisedRoutes(host: Netns, log: (message: string) => void): void {
  for (const name of listAdvertisedLinks(host)) {
    // The link may be gone by now.
    ignoreErrors(["ENOENT"], () => ensureSysctl(acceptRa(name), "2"));
    log(`Set ${sysctlWord(acceptRa(name))} to 2: with 1, forwarding would remove its IPv6 default route`);
  }
}

/** Links that would lose the routes of routers if the host began to forward. */
export function listAdvertisedLinks(host: Netns): string[] {
  const links = link.list(host.route);
  const isPort = ({ master }: link.Link) => links.find(({ index }) => index === master)?.info?.kind === "bridge";
  const names = links.flatMap((each) => each.name && !isPort(each) && mayHaveRouter(each) ? [each.name] : []);
  return host.run(() =>
    names.filter((name) => findSysctl(acceptRa(name)) === "1" && findSysctl(`net/ipv6/conf/${name}/forwarding`) === "0")
  );
}

/** Links that take routes of routers although they forward: those of {@linkcode enableForwarding}, and of administrators. */
export function listKeptLinks(host: Netns): string[] {
  const names = link.list(host.route).flatMap(({ name }) => name ?? []);
  return host.run(() =>
    names.filter((name) => findSysctl(acceptRa(name)) === "2" && findSysctl(`net/ipv6/conf/${name}/forwarding`) === "1")
  );
}

/** Links of containers have such names also before they have an owner: no container becomes the host's router. */
const CONTAINER_VETH = /^veth[0-9a-f]{8}$/;

export function mayHaveRouter(device: link.Link): boolean {
  const isOwn = isNewLink(device) || isCreatedHere(device) || parseAlias(device.alias) !== undefined;
  return device.name !== "lo" && !isOwn && !(device.info?.kind === "veth" && CONTAINER_VETH.test(device.name ?? ""));
}

/** Whether the host has its IPv6 by a bridge of others, as where the uplink is a port of it. */
export function hasRouter(host: Netns, bridge: link.Link): boolean {
  if (!mayHaveRouter(bridge) || host.run(() => findSysctl(acceptRa(bridge.name!))) === "0") return false;
  const { index } = bridge;
  return route.list(host.route, AF_INET6, RT_TABLE_MAIN, index).some(({ dst }) => prefixLengthOf(dst) === 0) ||
    address.list(host.route, { index, family: AF_INET6 }).some(isAdvertised);
}

/** An address with a lifetime shows that a router is there. */
export function isAdvertised({ address, scope, flags }: address.InterfaceAddress): boolean {
  return familyOf(address) === 6 && scope === RT_SCOPE_UNIVERSE && !(flags & IFA_F_PERMANENT);
}

/** A command that turns forwarding on, and keeps the host's routes. */
export function forwardingCommand(host: Netns, family: Family): string {
  const kept = family === 6 ? listAdvertisedLinks(host).map((name) => `${sysctlWord(acceptRa(name))}=2`) : [];
  return shellCommand(["sysctl", "-w", ...kept, `${sysctlWord(FORWARDING[family])}=1`]);
}
