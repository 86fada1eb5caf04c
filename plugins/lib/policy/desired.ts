/**
 * What network policy is to be in the kernel: the compiler says it, the ruleset has it.
 *
 * @module
 */
import type { Ip } from "../../../ffi/address.ts";

/** What the kernel enforces on this node. */
export interface DesiredPolicy {
  readonly pods: Iterable<PolicedPod>;
  /** Their names are their keys. */
  readonly chains: ReadonlyMap<string, PolicyChain>;
  /** Rules name them by their keys. */
  readonly sets: ReadonlyMap<string, PeerSet>;
}

export type PolicyDirection = "ingress" | "egress";

export interface PolicedPod {
  /** `namespace/name` and the UID, for comments and logs. */
  readonly owner: string;
  readonly ips: readonly Ip[];
  /** Nothing passes in either direction, as its policies are not known. */
  readonly isClosed?: true;
  /** Key of a chain; absent: no policy isolates it in that direction. */
  readonly ingress?: string;
  readonly egress?: string;
}

export const isSamePoliced = (a: PolicedPod, b: PolicedPod): boolean =>
  a.owner === b.owner && a.isClosed === b.isClosed && a.ingress === b.ingress && a.egress === b.egress &&
  a.ips.join() === b.ips.join();

/** All pods with the same rules share it. One with other rules has another key. */
export interface PolicyChain {
  readonly key: string;
  readonly direction: PolicyDirection;
  readonly rules: readonly PolicyRule[];
}

/** It accepts what matches all of its fields. */
export interface PolicyRule {
  /** Keys of sets: the peer is in one of them. Absent: everybody. */
  readonly peers?: readonly string[];
  /** Absent: all protocols and ports. */
  readonly ports?: readonly PortMatch[];
}

export type PortMatch =
  /** Without a first one: all ports. */
  | { readonly protocol: number; readonly first?: number; readonly last?: number }
  /** Key of a set of ranges. */
  | { readonly protocol: number; readonly ranges: string }
  /** Key of a set of ports. */
  | { readonly named: string };

export interface AddressSet {
  readonly kind: "addresses";
  readonly ips: Iterable<Ip>;
}

/** Its intervals are sorted, and touch no other. */
export interface BlockSet {
  readonly kind: "blocks";
  readonly intervals: Iterable<readonly [first: Ip, last: Ip]>;
}

/** Numbers of ports, sorted; none touches another one. */
export interface PortRangeSet {
  readonly kind: "ranges";
  readonly ranges: Iterable<readonly [first: number, last: number]>;
}

/** Ports by the address that they are of. */
export interface PortSet {
  readonly kind: "ports";
  readonly elements: Iterable<PortElement>;
}

export interface PortElement {
  readonly ip: Ip;
  readonly protocol: number;
  readonly port: number;
}

export type PeerSet = AddressSet | BlockSet | PortRangeSet | PortSet;

/** A change of what the kernel has. A key is in one of the lists only. */
export interface PolicyChange {
  /** With all of their elements. */
  readonly setsAdded: ReadonlyMap<string, PeerSet>;
  readonly setsRemoved: readonly string[];
  /** Of sets that stay. Blocks and ranges never change: others have another key. */
  readonly elements: readonly SetChange[];
  readonly chainsAdded: readonly PolicyChain[];
  readonly chainsRemoved: readonly string[];
  /** These pods have other chains or addresses than before. */
  readonly pods: readonly PolicedPod[];
}

export const isEmptyChange = (
  { setsAdded, setsRemoved, elements, chainsAdded, chainsRemoved, pods }: PolicyChange,
): boolean =>
  setsAdded.size === 0 &&
  [setsRemoved, elements, chainsAdded, chainsRemoved, pods].every(({ length }) => length === 0);

/** Whether it isolates pods otherwise than before, or removes peers. A chain or set goes with the last pod that has it. */
export const mayForbid = ({ elements, pods }: PolicyChange): boolean =>
  pods.some(isIsolated) || elements.some(({ removed }) => removed !== undefined);

const isIsolated = ({ isClosed, ingress, egress }: PolicedPod): boolean =>
  isClosed === true || (ingress ?? egress) !== undefined;

export interface SetChange {
  readonly set: string;
  readonly added?: PeerSet;
  readonly removed?: PeerSet;
}
