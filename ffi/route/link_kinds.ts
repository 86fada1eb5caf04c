/**
 * Kinds of links, each with the attributes of its own: `link.add(host.route, { name: "cni0", info: bridge({}) })`.
 *
 * @see linux/if_link.h, linux/veth.h
 * @module
 */
import { attrs, type AttrsIn, type AttrsOut, type AttrTable } from "../netlink/attrs.ts";
import { type Codec, type In, type Out, Reader, u16, u32, u8, Writer } from "../netlink/codec.ts";
import { readMessage, writePayload } from "../netlink/message.ts";
import { type Link, type LinkIn, linkMessage } from "./link.ts";
import {
  IFLA_BR_VLAN_DEFAULT_PVID,
  IFLA_BR_VLAN_FILTERING,
  IFLA_BRPORT_ISOLATED,
  IFLA_BRPORT_MODE,
  IFLA_IPVLAN_MODE,
  IFLA_MACVLAN_BC_QUEUE_LEN,
  IFLA_MACVLAN_MODE,
  IFLA_TUN_GROUP,
  IFLA_TUN_MULTI_QUEUE,
  IFLA_TUN_OWNER,
  IFLA_TUN_TYPE,
  IFLA_VLAN_ID,
  IFLA_VRF_TABLE,
  VETH_INFO_PEER,
} from "./uapi.ts";

/** A kind of link: called, it gives the `info` that creates one; `of` reads it back. */
export interface LinkKind<T extends AttrTable> {
  (value: AttrsIn<T>): { readonly kind: string; readonly data: Uint8Array };
  /** The kind's attributes if `link` is of this kind. */
  of(link: Link): AttrsOut<T> | undefined;
}

function linkKind<const T extends AttrTable>(kind: string, declare: () => T): LinkKind<T> {
  const layout = attrs(declare);
  const create = (value: AttrsIn<T>) => {
    const w = new Writer();
    layout.write(w, value);
    return { kind, data: w.written() };
  };
  return Object.assign(create, {
    of: (link: Link) =>
      link.info?.kind === kind ? layout.read(new Reader(link.info.data ?? new Uint8Array())) : undefined,
  });
}

/** A whole link message in an attribute: the veth's other end. */
const peerLink: Codec<Link, LinkIn> = {
  nested: true,
  write: (w, value) => writePayload(w, linkMessage, value),
  read: (r) => readMessage(linkMessage, r),
};

/** A pair of virtual Ethernet ends; `peer` is the other end, which may be born in another namespace. */
export const veth = /* @__PURE__ */ linkKind("veth", () => ({ peer: [VETH_INFO_PEER, peerLink] }));

/** A learning bridge. */
export const bridge = /* @__PURE__ */ linkKind("bridge", () => ({
  vlanFiltering: [IFLA_BR_VLAN_FILTERING, u8],
  defaultPvid: [IFLA_BR_VLAN_DEFAULT_PVID, u16],
}));

/** A link that gives back what is redirected to it, so that incoming packets can wait in a queue. */
export const ifb = /* @__PURE__ */ linkKind("ifb", () => ({}));

/** A link that leads nowhere, to hold addresses. */
export const dummy = /* @__PURE__ */ linkKind("dummy", () => ({}));

/** A router of its own: what its ports receive, and what is sent by it, is routed by `table` alone. */
export const vrf = /* @__PURE__ */ linkKind("vrf", () => ({ table: [IFLA_VRF_TABLE, u32] }));

/** A link with a MAC address of its own on the wire of its master. */
export const macvlan = /* @__PURE__ */ linkKind("macvlan", () => ({
  /** MACVLAN_MODE_… */
  mode: [IFLA_MACVLAN_MODE, u32],
  /** How many broadcast packets may wait to be handed on. */
  bcQueueLen: [IFLA_MACVLAN_BC_QUEUE_LEN, u32],
}));

/** A link that shares wire and MAC address with its master, and is told from it by its IP addresses. */
export const ipvlan = /* @__PURE__ */ linkKind("ipvlan", () => ({
  /** IPVLAN_MODE_… */
  mode: [IFLA_IPVLAN_MODE, u16],
}));

/** The frames of its master that have an 802.1Q tag. */
export const vlan = /* @__PURE__ */ linkKind("vlan", () => ({ id: [IFLA_VLAN_ID, u16] }));

/** Links of which a program is the other end; they are made by ioctl(2). */
export const tun = /* @__PURE__ */ linkKind("tun", () => ({
  /** The user who may open it. */
  owner: [IFLA_TUN_OWNER, u32],
  /** The group whose members may. */
  group: [IFLA_TUN_GROUP, u32],
  /** IFF_TUN or {@linkcode IFF_TAP}. */
  type: [IFLA_TUN_TYPE, u8],
  multiQueue: [IFLA_TUN_MULTI_QUEUE, u8],
}));

/** What a bridge keeps about one of its ports. */
const bridgePortAttrs = /* @__PURE__ */ attrs(() => ({
  /** Send frames back out of the port they came in by. */
  hairpin: [IFLA_BRPORT_MODE, u8],
  /** Exchange no frames with other isolated ports. */
  isolated: [IFLA_BRPORT_ISOLATED, u8],
}));

/** The `info` that changes a bridge's port. */
export function bridgePortInfo(
  value: In<typeof bridgePortAttrs>,
): { readonly portKind: string; readonly portData: Uint8Array } {
  const w = new Writer();
  bridgePortAttrs.write(w, value);
  return { portKind: "bridge", portData: w.written() };
}

/** What the bridge keeps about the port `link`, or `undefined` if it is no port of a bridge. */
export function bridgePortOf(link: Link): Out<typeof bridgePortAttrs> | undefined {
  const { portKind, portData } = link.info ?? {};
  return portKind === "bridge" && portData ? bridgePortAttrs.read(new Reader(portData)) : undefined;
}
