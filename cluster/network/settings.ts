import type { Cidr } from "../../ffi/address.ts";

/** `auto`: only to nodes that are on no link of this node. */
export const TUNNEL_MODES = ["auto", "always", "never"] as const;

export interface ClusterSettings {
  readonly tunnel: (typeof TUNNEL_MODES)[number];
  /** VXLAN calls it the network identifier. */
  readonly vni: number;
  /** The UDP port of VXLAN. */
  readonly port: number;
  /** Destinations outside the cluster that see pods' addresses. */
  readonly nonMasqueradeCidrs: readonly Cidr[];
}

/** The registered port of VXLAN. The identifier is one that nobody else chooses: "cni". */
export const DEFAULT_CLUSTER_SETTINGS: ClusterSettings = {
  tunnel: "auto",
  vni: 0x636e69,
  port: 4789,
  nonMasqueradeCidrs: [],
};

/** Marks routes of this program. The kernel and its registry of names have no such number. */
export const ROUTE_PROTOCOL = 67;

export const TUNNEL_LINK = "cni-vxlan";
