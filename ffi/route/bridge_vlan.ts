/** VLANs of bridges and their ports. @see linux/if_bridge.h struct bridge_vlan_info @module */
import { attrs } from "../netlink/attrs.ts";
import { struct, u16, u32 } from "../netlink/codec.ts";
import { message } from "../netlink/message.ts";
import { dump, execute, type Netlink } from "../netlink/socket.ts";
import { AF_BRIDGE } from "../sys/uapi.ts";
import { ifinfomsg } from "./link.ts";
import { rtnetlinkOperations } from "./operations.ts";
import * as uapi from "./uapi.ts";

const vlanInfo = struct({ flags: u16, vid: u16 });
const vlanMessage = message("bridge vlan", ifinfomsg, () => ({
  extMask: [uapi.IFLA_EXT_MASK, u32],
  vlans: [uapi.IFLA_AF_SPEC, attrs(() => ({ info: [uapi.IFLA_BRIDGE_VLAN_INFO, vlanInfo, "repeated"] }))],
}));
const VLAN = /* @__PURE__ */ rtnetlinkOperations("LINK", uapi.RTM_NEWLINK, vlanMessage);

export interface Vlan {
  readonly vid: number;
  /** Untagged frames that come in belong to it. */
  readonly pvid?: boolean;
  /** Its frames leave without a tag. */
  readonly untagged?: boolean;
}

export function add(nl: Netlink, port: number, vlans: readonly Vlan[]): void {
  const info = vlans.map(({ vid, pvid, untagged }) => ({
    vid,
    flags: (pvid ? uapi.BRIDGE_VLAN_INFO_PVID : 0) | (untagged ? uapi.BRIDGE_VLAN_INFO_UNTAGGED : 0),
  }));
  execute(nl, VLAN.SET, { family: AF_BRIDGE, index: port, vlans: { info } });
}

export function remove(nl: Netlink, port: number, vids: readonly number[]): void {
  execute(nl, VLAN.DEL, { family: AF_BRIDGE, index: port, vlans: { info: vids.map((vid) => ({ vid })) } });
}

/** @param port the index of a link */
export function list(nl: Netlink, port: number): Vlan[] {
  const ports = dump(nl, VLAN.GET, { family: AF_BRIDGE, extMask: uapi.RTEXT_FILTER_BRVLAN });
  const vlans: Vlan[] = [];
  let first = 0;
  for (const { vid, flags } of ports.find(({ index }) => index === port)?.vlans?.info ?? []) {
    if (flags & uapi.BRIDGE_VLAN_INFO_RANGE_BEGIN) first = vid;
    const pvid = (flags & uapi.BRIDGE_VLAN_INFO_PVID) !== 0;
    const untagged = (flags & uapi.BRIDGE_VLAN_INFO_UNTAGGED) !== 0;
    const from = flags & uapi.BRIDGE_VLAN_INFO_RANGE_END ? first + 1 : vid;
    for (let vlanId = from; vlanId <= vid; vlanId++) vlans.push({ vid: vlanId, pvid, untagged });
  }
  return vlans;
}
