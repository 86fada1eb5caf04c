/** What the part says of itself, in a file that `cni doctor`, `/readyz` and the metrics read. @module */
import { replaceFile } from "../ffi/sys/atomic_file.ts";
import { findText } from "../ffi/sys/file.ts";

/** That of a server with the default socket. */
export const DEFAULT_POLICY_STATE_DIRECTORY = "/run/cni/policy";

export interface PolicyStatus {
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
  /** Known ones, of this node and of others. */
  readonly peers: number;
  /** Attached ones of this node. */
  readonly pods: number;
  /** Those of them that a policy isolates. */
  readonly isolatedPods: number;
  /** `namespace/name` of pods that are closed, as their labels are not known. */
  readonly closedPods: readonly string[];
  readonly sets: number;
  /** Flows that policy has ended, and that are tracked still. */
  readonly cutFlows: number;
  readonly problems: readonly string[];
}

const statusPath = (stateDirectory: string): string => `${stateDirectory}/status.json`;

export function writePolicyStatus(stateDirectory: string, status: PolicyStatus): void {
  replaceFile(statusPath(stateDirectory), `${JSON.stringify(status)}\n`);
}

/** Returns `undefined` if no such part has run since the host has started. */
export function findPolicyStatus(stateDirectory: string): PolicyStatus | undefined {
  const text = findText(statusPath(stateDirectory));
  return text === undefined ? undefined : JSON.parse(text);
}
