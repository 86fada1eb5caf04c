/** What the plugin asks the server's part when it has closed a pod: a line of JSON, which is answered by one. */
export interface AttachRequest {
  readonly namespace: string;
  readonly name: string;
  readonly uid?: string;
  /** The pod's link on the host. */
  readonly interface: string;
  readonly ips: readonly string[];
  readonly container: string;
}

/** `closed`: the pod's policies are not known yet. */
export interface AttachAnswer {
  readonly state: "enforced" | "closed";
}
