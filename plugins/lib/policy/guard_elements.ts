/** What the tables have for a pod whatever its policies are: its link and its addresses. */
import { familyOf, type Ip, ipBytes, type Mac, macBytes } from "../../../ffi/address.ts";
import { concatenation, ifnameField } from "../../../ffi/nft/statements.ts";
import { POD_LINKS, POD_MACS, podAddressSet, podSourceSet, ROUTED_PORTS, selfCalls } from "../ruleset/policy_tables.ts";
import type { WantedElement } from "../ruleset/wanted_elements.ts";

/** A pod as the ruleset sees it, by its link on the host. */
export interface GuardedPod {
  readonly link: string;
  /** MAC addresses of the link and of the pod, if the link is a port of a bridge. */
  readonly port: { readonly own: Mac; readonly pod: Mac } | undefined;
  readonly ips: readonly Ip[];
}

/** In `table inet`: for pods on bridges too, as it tells which addresses are attached. */
export function guardElements({ link, ips }: Omit<GuardedPod, "port">): WantedElement[] {
  return [
    { set: POD_LINKS, key: ifnameField(link), title: `guard of "${link}"` },
    ...ips.flatMap((ip): WantedElement[] => [
      {
        set: podAddressSet(familyOf(ip)),
        key: concatenation(ifnameField(link), ipBytes(ip)),
        title: `${ip} as a source of "${link}"`,
      },
      { set: selfCalls(familyOf(ip)), key: concatenation(ipBytes(ip), ipBytes(ip)), title: `calls of ${ip} to itself` },
    ]),
  ];
}

/** What `table bridge` has for a pod on a bridge, and nothing for others. */
export function bridgeGuardElements({ link, ips, port }: GuardedPod): WantedElement[] {
  if (port === undefined) return [];
  const sender = [ifnameField(link), macBytes(port.pod)];
  return [
    { set: POD_LINKS, key: ifnameField(link), title: `guard of port "${link}"` },
    { set: POD_MACS, key: concatenation(...sender), title: `${port.pod} as the address of "${link}"` },
    {
      set: ROUTED_PORTS,
      key: ifnameField(link),
      value: macBytes(port.own),
      title: `packets of port "${link}" to the host`,
    },
    ...ips.map((ip) => ({
      set: podSourceSet(familyOf(ip)),
      key: concatenation(...sender, ipBytes(ip)),
      title: `${ip} at ${port.pod} as a source of "${link}"`,
    })),
  ];
}
