/** `netlink` is a request, `nft` a transaction, `wait` a sleep or an answer that is late. */
export type TraceKind =
  | ("call" | "plugin" | "program" | "step" | "undo")
  | ("netlink" | "nft" | "file" | "sysctl" | "dbus" | "socket" | "wait");

export interface TraceEvent {
  readonly kind: TraceKind;
  /** `bridge ADD`, `add link "cni0"`, `net/ipv4/ip_forward`. */
  readonly name: string;
  /** The namespace of a request: `host`, or its path. */
  readonly netns?: string;
  /** The requests with names and values, or what was done to a file. */
  readonly details: string[];
  /** In milliseconds since the trace began. */
  readonly start: number;
  ms: number;
  /** Why it failed. The caller may have expected that. */
  error?: string;
  readonly children: TraceEvent[];
}

/** The event that others belong to while it lasts. */
export interface TraceCursor {
  current: TraceEvent;
  /** In milliseconds since the trace began. */
  now(): number;
}
