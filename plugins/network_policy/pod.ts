/** The pod as the ruleset sees it: its link on the host and its addresses. */
import { familyOf, type Ip, ipBytes, ipOf, type Mac, macBytes } from "../../ffi/address.ts";
import { concatenation, ifnameField } from "../../ffi/nft/statements.ts";
import * as link from "../../ffi/route/link.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { Result } from "../../spec/result.ts";
import { containerIps } from "../lib/links/container_ips.ts";
import type { CheckCall } from "../lib/protocol/plugin.ts";
import { POD_LINKS, podAddressSet, ROUTED_PORTS, selfCalls } from "../lib/ruleset/policy_tables.ts";
import type { WantedElement } from "../lib/ruleset/wanted_elements.ts";

export interface AttachedPod {
  readonly link: string;
  readonly index: number;
  /** The link's own, if it is a port of a bridge. */
  readonly portMac: Mac | undefined;
  /** Rules see what it sends if this is not 0. */
  readonly group: number;
  readonly ips: readonly Ip[];
}

/** @throws {CniError} code 7 if the host does not see what the pod sends */
export function findPod({ host, netns, ifname }: CheckCall<unknown>, result: Result): AttachedPod {
  const inside = link.get(netns.route, ifname);
  const outside = inside.linkIndex ? link.find(host.route, inside.linkIndex) : undefined;
  // With the other end in a third namespace, any link here may have its index.
  if (inside.info?.kind !== "veth" || outside?.info?.kind !== "veth" || outside.linkIndex !== inside.index) {
    throw new CniError(Code.InvalidConfig, `Cannot enforce policies on "${ifname}": it is no veth pair with the host`, {
      details: 'put "network-policy" behind a plugin such as "ptp" or "bridge", whose packets the host sees',
    });
  }
  const ips = [...new Set(containerIps(result, ifname).map(({ address }) => ipOf(address)))];
  const { name = "", index, group = 0, master, mac } = outside;
  return { link: name, index, portMac: master === undefined ? undefined : mac, group, ips };
}

/** In `table inet`: for pods on bridges too, as it tells which addresses are attached. */
export function guardElements({ link: name, ips }: AttachedPod): WantedElement[] {
  return [
    { set: POD_LINKS, key: ifnameField(name), title: `guard of "${name}"` },
    ...ips.flatMap((ip): WantedElement[] => [
      addressElement(name, ip),
      { set: selfCalls(familyOf(ip)), key: concatenation(ipBytes(ip), ipBytes(ip)), title: `calls of ${ip} to itself` },
    ]),
  ];
}

/** What `table bridge` has for a pod on a bridge, and nothing for others. */
export function bridgeGuardElements({ link: name, ips, portMac }: AttachedPod): WantedElement[] {
  if (portMac === undefined) return [];
  return [
    { set: POD_LINKS, key: ifnameField(name), title: `guard of port "${name}"` },
    {
      set: ROUTED_PORTS,
      key: ifnameField(name),
      value: macBytes(portMac),
      title: `packets of port "${name}" to the host`,
    },
    ...ips.map((ip) => addressElement(name, ip)),
  ];
}

function addressElement(name: string, ip: Ip): WantedElement {
  const key = concatenation(ifnameField(name), ipBytes(ip));
  return { set: podAddressSet(familyOf(ip)), key, title: `${ip} as a source of "${name}"` };
}
