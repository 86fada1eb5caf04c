/**
 * The VLANs of a bridge and of its ports.
 *
 * @see linux/if_bridge.h struct bridge_vlan_info, net/bridge/br_netlink.c
 * @module
 */
import { attrs } from "../netlink/attrs.ts";
import { struct, u16, u32 } from "../netlink/codec.ts";
import { message, type Operation } from "../netlink/message.ts";
import { dump, execute, type Netlink } from "../netlink/socket.ts";
import { AF_BRIDGE } from "../sys/uapi.ts";
import { ifinfomsg } from "./link.ts";
import {
  BRIDGE_VLAN_INFO_PVID,
  BRIDGE_VLAN_INFO_RANGE_BEGIN,
  BRIDGE_VLAN_INFO_RANGE_END,
  BRIDGE_VLAN_INFO_UNTAGGED,
  IFLA_AF_SPEC,
  IFLA_BRIDGE_VLAN_INFO,
  IFLA_EXT_MASK,
  RTEXT_FILTER_BRVLAN,
  RTM_DELLINK,
  RTM_GETLINK,
  RTM_SETLINK,
} from "./uapi.ts";

const vlanMessage = message("bridge vlan", ifinfomsg, () => ({
  extMask: [IFLA_EXT_MASK, u32],
  vlans: [IFLA_AF_SPEC, attrs(() => ({ info: [IFLA_BRIDGE_VLAN_INFO, struct({ flags: u16, vid: u16 }), "repeated"] }))],
}));
type VlanOp = Operation<typeof vlanMessage>;
const SET: VlanOp = { name: "RTM_SETLINK", type: RTM_SETLINK, spec: vlanMessage };
const DEL: VlanOp = { name: "RTM_DELLINK", type: RTM_DELLINK, spec: vlanMessage };
const GET: VlanOp = { name: "RTM_GETLINK", type: RTM_GETLINK, spec: vlanMessage };

/** A VLAN of a port. */
export interface Vlan {
  /** 1 to 4094. */
  readonly vid: number;
  /** Untagged frames that come in belong to it. */
  readonly pvid?: boolean;
  /** Its frames go out without a tag. */
  readonly untagged?: boolean;
}

/** Adds VLANs to the bridge port with this index, in one request. @throws {NetlinkError} */
export function add(nl: Netlink, port: number, vlans: readonly Vlan[]): void {
  const info = vlans.map(({ vid, pvid, untagged }) => ({
    vid,
    flags: (pvid ? BRIDGE_VLAN_INFO_PVID : 0) | (untagged ? BRIDGE_VLAN_INFO_UNTAGGED : 0),
  }));
  execute(nl, SET, { family: AF_BRIDGE, index: port, vlans: { info } });
}

/** Removes VLANs from the bridge port with this index, in one request. @throws {NetlinkError} */
export function remove(nl: Netlink, port: number, vids: readonly number[]): void {
  execute(nl, DEL, { family: AF_BRIDGE, index: port, vlans: { info: vids.map((vid) => ({ vid })) } });
}

/** The VLANs of the bridge port with this index, ascending. @throws {NetlinkError} */
export function list(nl: Netlink, port: number): Vlan[] {
  const reply = dump(nl, GET, { family: AF_BRIDGE, extMask: RTEXT_FILTER_BRVLAN }).find((entry) =>
    entry.index === port
  );
  const vlans: Vlan[] = [];
  let first = 0;
  for (const { vid, flags } of reply?.vlans?.info ?? []) {
    if (flags & BRIDGE_VLAN_INFO_RANGE_BEGIN) first = vid;
    const from = flags & BRIDGE_VLAN_INFO_RANGE_END ? first + 1 : vid;
    const attributes = {
      pvid: (flags & BRIDGE_VLAN_INFO_PVID) !== 0,
      untagged: (flags & BRIDGE_VLAN_INFO_UNTAGGED) !== 0,
    };
    for (let vlanId = from; vlanId <= vid; vlanId++) vlans.push({ vid: vlanId, ...attributes });
  }
  return vlans;
}
