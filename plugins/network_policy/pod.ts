/** The pod as the ruleset sees it: its link on the host and its addresses. */
import { ipOf } from "../../ffi/address.ts";
import * as link from "../../ffi/route/link.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { Result } from "../../spec/result.ts";
import { containerIps } from "../lib/links/container_ips.ts";
import type { GuardedPod } from "../lib/policy/guard_elements.ts";
import type { CheckCall } from "../lib/protocol/plugin.ts";

export interface AttachedPod extends GuardedPod {
  readonly index: number;
  /** Index of the bridge, if the link is its port. */
  readonly bridge: number | undefined;
  /** Rules see what it sends if this is not 0. */
  readonly group: number;
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
  const port = master === undefined ? undefined : { own: mac!, pod: inside.mac! };
  return { link: name, index, bridge: master, port, group, ips };
}
