import type { Cidr, Ip } from "../../ffi/address.ts";
import type { LinkPackets } from "../../ffi/route/link_statistics.ts";
import type { NamedAttachment } from "../../containers/engine_names.ts";

/**
 * What exists on a node: `cni show --format json` prints this document.
 *
 * Keys that do not apply are absent. Link-local addresses and routes are left out.
 */
export interface NodeTree {
  /** Links of the host with a default route, by name. */
  readonly uplinks: readonly Uplink[];
  /** Links of the host that containers share, by name: bridges, VRFs and lower devices. */
  readonly devices: readonly Device[];
  /** Attachments that share no link, such as those of ptp and host-device. */
  readonly separate: readonly Port[];
  /** Other nodes of a cluster whose pods are reached from here, by name. */
  readonly nodes: readonly ShownNode[];
  /** The tables of this program, and chains of other tables that lead to its rules. */
  readonly tables: readonly RulesetTable[];
}

export interface ShownNode {
  /** Its first range, if the name is unknown. */
  readonly name: string;
  readonly routes: readonly ShownNodeRoute[];
}

export interface ShownNodeRoute {
  readonly dst: Cidr;
  /** An address of the node, also where the way is a tunnel. */
  readonly gateway?: Ip;
  readonly link: string;
  readonly isTunnelled: boolean;
}

export interface ShownLink {
  readonly name: string;
  /** As ip(8) calls it: `bridge`, `veth`; absent for hardware. */
  readonly kind?: string;
  /** The operational state (RFC 2863): `up`, `down`, `lowerlayerdown`, `unknown`. */
  readonly state: string;
  readonly mtu?: number;
  readonly mac?: string;
  readonly addresses: readonly Cidr[];
  readonly packets?: LinkPackets;
}

export interface Uplink extends ShownLink {
  /** Of default routes; empty for a default route without one. */
  readonly gateways: readonly Ip[];
}

export interface Device extends ShownLink {
  readonly networks: readonly string[];
  /** Attachments come first, by network and container. */
  readonly ports: readonly Port[];
}

/** One attachment, or one port of a bridge that belongs to no attachment. */
export interface Port {
  /** The host's end; absent for macvlan, ipvlan, vlan and host-device. */
  readonly link?: ShownLink;
  readonly attachment?: ShownAttachment;
}

/** `state`, `reason` and the rest as `cni run list --json` has them. */
export interface ShownAttachment
  extends Pick<NamedAttachment, "network" | "containerId" | "name" | "ifname" | "state" | "reason" | "netns"> {
  /** Empty if the namespace cannot be opened. */
  readonly interfaces: readonly ContainerInterface[];
  readonly publishedPorts: readonly ShownPublishedPort[];
  /** Absent where no NetworkPolicy is enforced. */
  readonly policy?: ShownPolicy;
  /** Its elements in sets and maps of {@linkcode NodeTree.tables}. */
  readonly elements: readonly ShownElement[];
}

/** By direction; {@linkcode ShownIsolation} says which packets pass. */
export interface ShownPolicy {
  readonly ingress: ShownIsolation;
  readonly egress: ShownIsolation;
}

/** All pass; what policies allow; none, as the policies are not known yet. */
export type ShownIsolation = "open" | "isolated" | "closed";

export interface ContainerInterface extends ShownLink {
  /** The bridge or VRF in the container that it is a port of. */
  readonly master?: string;
  readonly routes: readonly ShownRoute[];
}

export interface ShownRoute {
  readonly dst: Cidr;
  readonly gateway?: Ip;
  /** Absent for routes of table main. */
  readonly table?: number;
  readonly metric?: number;
  readonly mtu?: number;
}

export interface ShownPublishedPort {
  readonly protocol: string;
  /** Absent for all addresses of the host. */
  readonly hostAddress?: string;
  readonly hostPort: number;
  readonly containerPort: number;
  /** Where calls go; empty if no element of table `inet cni` publishes the port. */
  readonly containerAddresses: readonly string[];
}

export interface ShownElement {
  /** `inet cni` */
  readonly table: string;
  readonly set: string;
  /** As nft(8) prints it: `10.88.0.2 : jump masquerade-10.88.0.0/24`. */
  readonly element: string;
}

export interface RulesetTable {
  /** `inet`, `bridge`, `ip`, `ip6` */
  readonly family: string;
  readonly name: string;
  readonly chains: readonly RulesetChain[];
  readonly sets: readonly { readonly name: string; readonly comment?: string; readonly elements: number }[];
}

export interface RulesetChain {
  readonly name: string;
  readonly comment?: string;
  /** `filter`, `nat`, `route`; this and the next two for base chains only. */
  readonly type?: string;
  readonly hook?: string;
  readonly priority?: number;
  readonly policy?: "accept" | "drop";
  readonly rules: readonly RulesetRule[];
}

export interface RulesetRule {
  /** In the words of nft(8); what this program does not know is in brackets. */
  readonly text: string;
  readonly comment?: string;
  /** This and the next for rules with a counter only. */
  readonly packets?: number;
  readonly bytes?: number;
}
