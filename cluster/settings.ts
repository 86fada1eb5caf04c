import type { ClusterSettings } from "./network/settings.ts";

/** `ranges`: somebody else routes between nodes, and the part only gives engines the network with this node's ranges. */
export const CLUSTER_PARTS = ["network", "ranges"] as const;

/** What the part of the server is told. */
export interface ClusterPartSettings extends ClusterSettings {
  readonly what: (typeof CLUSTER_PARTS)[number];
  /** The name of this node's object. */
  readonly node: string;
  /** `https://10.96.0.1:443` */
  readonly apiServer: string;
  /** Whether the Node gets the condition that its network is up. */
  readonly setsCondition: boolean;
  /** The network that engines get after the first sync. */
  readonly network?: { readonly fileName: string; readonly text: string };
}
