/**
 * Kinds of links and their attributes: `link.add(host.route, { name: "cni0", info: bridge({}) })`.
 *
 * @see linux/if_link.h, linux/veth.h
 * @module
 */
import { attrs, type AttrsIn, type AttrsOut, type AttrTable } from "../netlink/attrs.ts";
import { be16, type Codec, type In, type Out, Reader, u16, u32, u8, Writer } from "../netlink/codec.ts";
import { readMessage, writePayload } from "../netlink/message.ts";
import { type Link, type LinkIn, linkMessage } from "./link.ts";
import * as uapi from "./uapi.ts";

/** Called, it makes the `info` that creates a link. */
export interface LinkKind<T extends AttrTable> {
  (value: AttrsIn<T>): { readonly kind: string; readonly data: Uint8Array };
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

const peerLink: Codec<Link, LinkIn> = {
  nested: true,
  write: (w, value) => writePayload(w, linkMessage, value),
  read: (r) => readMessage(linkMessage, r),
};

export const veth = /* @__PURE__ */ linkKind("veth", () => ({ peer: [uapi.VETH_INFO_PEER, peerLink] }));

export const bridge = /* @__PURE__ */ linkKind("bridge", () => ({
  vlanFiltering: [uapi.IFLA_BR_VLAN_FILTERING, u8],
  defaultPvid: [uapi.IFLA_BR_VLAN_DEFAULT_PVID, u16],
}));

/** Returns what is redirected to it, so that incoming packets can queue. */
export const ifb = /* @__PURE__ */ linkKind("ifb", () => ({}));

export const dummy = /* @__PURE__ */ linkKind("dummy", () => ({}));

/** Routes its ports' packets by `table` alone. */
export const vrf = /* @__PURE__ */ linkKind("vrf", () => ({ table: [uapi.IFLA_VRF_TABLE, u32] }));

export const macvlan = /* @__PURE__ */ linkKind("macvlan", () => ({
  mode: [uapi.IFLA_MACVLAN_MODE, u32],
  bcQueueLen: [uapi.IFLA_MACVLAN_BC_QUEUE_LEN, u32],
}));

export const ipvlan = /* @__PURE__ */ linkKind("ipvlan", () => ({
  mode: [uapi.IFLA_IPVLAN_MODE, u16],
}));

export const vlan = /* @__PURE__ */ linkKind("vlan", () => ({ id: [uapi.IFLA_VLAN_ID, u16] }));

export const vxlan = /* @__PURE__ */ linkKind("vxlan", () => ({
  learning: [uapi.IFLA_VXLAN_LEARNING, u8],
  port: [uapi.IFLA_VXLAN_PORT, be16],
  /** Routes say where a packet goes, see `encapsulation.ts`. */
  collectMetadata: [uapi.IFLA_VXLAN_COLLECT_METADATA, u8],
}));

/** The other end is a program, see `tap.ts`. */
export const tun = /* @__PURE__ */ linkKind("tun", () => ({
  owner: [uapi.IFLA_TUN_OWNER, u32],
  group: [uapi.IFLA_TUN_GROUP, u32],
  type: [uapi.IFLA_TUN_TYPE, u8],
  multiQueue: [uapi.IFLA_TUN_MULTI_QUEUE, u8],
}));

const bridgePortAttrs = /* @__PURE__ */ attrs(() => ({
  /** Lets frames leave by their incoming port. */
  hairpin: [uapi.IFLA_BRPORT_MODE, u8],
  /** Isolated ports exchange no frames. */
  isolated: [uapi.IFLA_BRPORT_ISOLATED, u8],
}));

export function bridgePortInfo(
  value: In<typeof bridgePortAttrs>,
): { readonly portKind: string; readonly portData: Uint8Array } {
  const w = new Writer();
  bridgePortAttrs.write(w, value);
  return { portKind: "bridge", portData: w.written() };
}

export function bridgePortOf(link: Link): Out<typeof bridgePortAttrs> | undefined {
  const { portKind, portData } = link.info ?? {};
  return portKind === "bridge" && portData ? bridgePortAttrs.read(new Reader(portData)) : undefined;
}
