/** What the part says of itself, in a file that `cni doctor`, `/readyz` and the metrics read. @module */
import { findStatusFile, type StatusOrigin } from "../cluster/status_file.ts";
import { podKey } from "./api/pod.ts";
import type { PolicyCompiler } from "./compiler.ts";

/** That of a server with the default socket. */
export const DEFAULT_POLICY_STATE_DIRECTORY = "/run/cni/policy";

export interface PolicyStatus extends StatusOrigin {
  readonly node: string;
  /** The network of its pods, if the server gives engines one. */
  readonly network?: string;
  /** Whether the kernel has had all that the API had, once. */
  readonly isSynced: boolean;
  /** What the API server said last was believed at this time, in milliseconds since 1970; absent before. */
  readonly heardAtMs?: number;
  /** Absent while the API server answers. */
  readonly apiProblem?: string;
  /** They are those of all namespaces. */
  readonly policies: number;
  /** `namespace/name` of those of which something cannot be used, which allows nothing. */
  readonly unreadablePolicies: readonly string[];
  /** Known ones, of this node and of others. */
  readonly peers: number;
  /** Attached ones of this node. */
  readonly pods: number;
  /** Those of them that a policy isolates. */
  readonly isolatedPods: number;
  /** `namespace/name` of pods that are closed, as their labels are not known. */
  readonly closedPods: readonly string[];
  readonly sets: number;
  /** Those of the sets: addresses and blocks of peers, and ports. */
  readonly elements: number;
  /** Flows that policy has ended, and that are tracked still. */
  readonly cutFlows: number;
  readonly problems: readonly string[];
}

/** What is counted of policies and pods. */
export function compiledStatus(
  compiler: PolicyCompiler,
): Pick<PolicyStatus, "policies" | "peers" | "pods" | "isolatedPods" | "closedPods" | "sets" | "elements"> {
  const locals = [...compiler.locals().values()];
  return {
    policies: compiler.policyCount,
    peers: compiler.peers.podCount,
    pods: locals.length,
    isolatedPods: compiler.isolatedCount,
    closedPods: locals.filter((local) => !compiler.isKnown(local)).map(podKey),
    sets: compiler.setCount,
    elements: compiler.elementCount,
  };
}

export const findPolicyStatus = (stateDirectory: string): PolicyStatus | undefined => findStatusFile(stateDirectory);
