import type { Cidr } from "../../ffi/address.ts";

export interface ClusterSettings {
  /** `auto`: only to nodes that are on no link of this node. */
  readonly tunnel: "auto" | "always" | "never";
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
