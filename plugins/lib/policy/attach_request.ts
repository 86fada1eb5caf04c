/** What the plugin asks the server's part when it has closed a pod: a line of JSON, which is answered by one. */
export interface AttachRequest {
  readonly namespace: string;
  readonly name: string;
  readonly uid?: string;
  /** The pod's link on the host. */
  readonly interface: string;
  readonly ips: readonly string[];
  readonly container: string;
  /**
   * From ADD alone: flows of who had the addresses before are to be deleted. It waits until then in any case, so
   * policies may come as late.
   */
  readonly deleteFlowsUntilMs?: number;
}

/** Asks whether the part has the policies of the API, and keeps the kernel in step. */
export interface SyncedQuestion {
  readonly question: "synced";
}

/** Asks whether the kernel has what these addresses of a pod are to have. */
export interface VerdictsQuestion {
  readonly question: "verdicts";
  readonly ips: readonly string[];
}

export interface VerdictsAnswer {
  /** What differs: `ingress of 10.1.0.2`. */
  readonly wrong: readonly string[];
}

/** Asks to delete the flows of addresses that have no pod any more. */
export interface DeleteFlowsRequest {
  readonly question: "delete-flows";
  readonly ips: readonly string[];
  /** In milliseconds since the boot. Later, the plugin has done it, and the flows may be those of the next pod. */
  readonly deleteFlowsUntilMs: number;
}

export interface DeleteFlowsAnswer {
  readonly areFlowsDeleted: boolean;
}

export interface SyncedAnswer {
  readonly isSynced: boolean;
}

/** `areFlowsDeleted`: those of who had the pod's addresses before. */
export interface AttachAnswer extends DeleteFlowsAnswer {
  /** `closed`: the pod's policies are not known yet. */
  readonly state: "enforced" | "closed";
}
