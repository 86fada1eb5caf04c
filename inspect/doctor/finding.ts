import type { Cidr, Ip } from "../../ffi/address.ts";
import type { InterfaceRoute } from "../../plugins/lib/links/configure_interface.ts";

/** `broken`: the configuration asks for it and does not get it. `warning`: worth knowing. */
export type FindingSeverity = "ok" | "broken" | "warning";

export interface Finding {
  readonly severity: FindingSeverity;
  /** In words, with names: `net.ipv4.ip_forward is 0`. */
  readonly what: string;
  /** What to do, in words. If there is a command too, it comes before it. */
  readonly advice?: string;
  /** A command for a shell that mends it. What is broken has this or `advice`, or both. */
  readonly mend?: string;
  /** What is advised can cut off a remote login. `--fix --yes` leaves it. */
  readonly mayDisconnect?: true;
  /** Present if `cni doctor --fix` can do it. */
  readonly repair?: Repair;
}

/** A harmless change. `netns` is the path of a container's namespace; without it, the host's is meant. */
export type Repair =
  | { readonly kind: "sysctl"; readonly netns?: string; readonly name: string; readonly value: string }
  | { readonly kind: "link-up"; readonly netns?: string; readonly link: string }
  | { readonly kind: "bridge-port"; readonly link: string; readonly bridge: string }
  | { readonly kind: "mtu"; readonly netns?: string; readonly link: string; readonly mtu: number }
  | { readonly kind: "address"; readonly netns?: string; readonly link: string; readonly address: Cidr }
  | { readonly kind: "route"; readonly netns: string; readonly link: string } & InterfaceRoute
  /** The kernel asks for the hardware address again. */
  | { readonly kind: "neighbour"; readonly netns?: string; readonly link: string; readonly address: Ip }
  | { readonly kind: "forwarding"; readonly family: 6 }
  | { readonly kind: "restore"; readonly network: string }
  | StaleFlowsRepair;

/** Deletes conntrack entries of a published port that lead elsewhere. */
export interface StaleFlowsRepair {
  readonly kind: "conntrack";
  readonly family: 4 | 6;
  readonly protocol: number;
  /** The host's address that was called. */
  readonly destination: Ip;
  readonly hostPort: number;
  /** Entries that lead to it, and to its port, stay. */
  readonly container: Ip;
  readonly containerPort: number;
}

export function ok(what: string): Finding {
  return { severity: "ok", what };
}

export type Remedy = string | Pick<Finding, "advice" | "mend" | "mayDisconnect">;

export function advise(advice: string, mend?: string): Remedy {
  return { advice, ...mend !== undefined && { mend } };
}

export function careful(remedy: Remedy, isRisky = true): Remedy {
  return isRisky ? { ...formatRemedy(remedy), mayDisconnect: true } : remedy;
}

const formatRemedy = (remedy: Remedy) => typeof remedy === "string" ? { mend: remedy } : remedy;

export function broken(what: string, remedy: Remedy, repair?: Repair): Finding {
  return { severity: "broken", what, ...formatRemedy(remedy), ...repair && { repair } };
}

export function warning(what: string, remedy: Remedy, repair?: Repair): Finding {
  return { severity: "warning", what, ...formatRemedy(remedy), ...repair && { repair } };
}

export const MAX_LISTED = 4;

/** `a, b, c, d and 96 more` */
export function abbreviate(items: readonly string[]): string {
  const listed = items.slice(0, MAX_LISTED).join(", ");
  return items.length > MAX_LISTED ? `${listed} and ${items.length - MAX_LISTED} more` : listed;
}
