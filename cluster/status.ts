/** What the part tells others of itself: a file that doctor, show, metrics and the probe of readiness read. @module */
import type { Cidr } from "../ffi/address.ts";
import type { LeftRoute } from "./network/left_route.ts";
import type { RouteCounts } from "./network/route_counts.ts";
import { findStatusFile, type StatusOrigin } from "./status_file.ts";

/** That of a server with the usual socket. */
export const DEFAULT_STATUS_DIRECTORY = "/run/cni/cluster";

export interface ClusterStatus extends StatusOrigin {
  readonly node: string;
  /** The network that engines get; absent without one. */
  readonly network?: string;
  /** This node's ranges; empty until they are known. Older servers do not tell. */
  readonly podCidrs?: readonly Cidr[];
  /** Whether the routes to all known nodes have been in the kernel once, and engines have the network. */
  readonly isSynced: boolean;
  /** What the API server said last was believed at this time, in milliseconds since 1970; absent before. */
  readonly heardAtMs?: number;
  /** Absent while the API server answers. */
  readonly apiProblem?: string;
  readonly nodes: number;
  /** Absent if somebody else routes. */
  readonly routes?: RouteCounts;
  /** Of a pod's interface, in bytes. */
  readonly mtu: number;
  /** Nodes that are not reached, and why. */
  readonly problems: readonly string[];
  /** Older servers do not tell. */
  readonly leftRoutes?: readonly LeftRoute[];
}

export const findClusterStatus = (stateDirectory: string): ClusterStatus | undefined => findStatusFile(stateDirectory);
