import type { Cidr } from "../ffi/address.ts";

/** `auto`: for nodes that are not on a link of this one. */
export const TUNNEL_MODES = ["auto", "always", "never"] as const;

export interface ClusterSettings {
  readonly tunnel: (typeof TUNNEL_MODES)[number];
  /** VXLAN network identifier. */
  readonly vni: number;
  /** UDP port of the tunnel, the same on all nodes. */
  readonly port: number;
  /** Destinations that see a pod's own address, as those in the cluster do. */
  readonly nonMasqueradeCidrs: readonly Cidr[];
}

/** `ranges`: somebody else routes between nodes, and the part only gives engines the network with this node's ranges. */
export const CLUSTER_PARTS = ["network", "ranges"] as const;

/** What the part of the server is told. */
export interface ClusterPartSettings extends ClusterSettings {
  readonly what: (typeof CLUSTER_PARTS)[number];
  /** The name of this node's object. */
  readonly node: string;
  /** `https://10.96.0.1:443` */
  readonly apiServer: string;
  /** The network that engines get after the first sync. */
  readonly network?: { readonly fileName: string; readonly text: string };
}
