/** The nodes of the cluster as far as they are known. @module */
import type { Cidr } from "../ffi/address.ts";
import { Garbage } from "./garbage.ts";
import { type ClusterNode, isSameNode } from "./node.ts";
import { type PodRange, PodRanges } from "./pod_ranges.ts";

/** What a network has to look at again. */
export interface NodeChanges {
  /** Whether this node itself has changed. */
  readonly own: boolean;
  /** UIDs of the others that came, changed or went. */
  readonly peers: ReadonlySet<string>;
}

/** A range of `node` that gets no route, as the older node `other` has addresses of it. */
export interface Conflict {
  readonly node: ClusterNode;
  readonly other: ClusterNode;
  readonly cidr: Cidr;
}

const NODES_OF_A_MEGABYTE = 500;

const NO_CHANGES: NodeChanges = { own: false, peers: new Set() };

export class KnownNodes {
  readonly #ownName: string;
  readonly #nodes = new Map<string, ClusterNode>();
  readonly #ranges = new PodRanges();
  /** UIDs of nodes whose ranges overlap. */
  readonly #contested = new Set<string>();
  /** UIDs of nodes whose addresses are older than what was told of them last. */
  readonly #withoutAddress = new Set<string>();
  #own: ClusterNode | undefined;

  constructor(ownName: string) {
    this.#ownName = ownName;
  }

  /** The last one that was known: without its Node, a node still has its pods. */
  get own(): ClusterNode | undefined {
    return this.#own;
  }

  get size(): number {
    return this.#nodes.size;
  }

  /** All of them, this node as well. */
  all(): Iterable<ClusterNode> {
    return this.#nodes.values();
  }

  find(uid: string): ClusterNode | undefined {
    return this.#nodes.get(uid);
  }

  /** Returns the known one if the told one says nothing else: what stays is kept once. */
  recognize(told: ClusterNode): ClusterNode {
    const known = this.#nodes.get(told.uid);
    return known && isSameNode(known, told) ? known : told;
  }

  /** What is missing in a list is gone. A list without this node cannot be right. */
  replace(nodes: readonly ClusterNode[]): NodeChanges | "without-own-node" {
    if (!nodes.some(({ name }) => name === this.#ownName)) return "without-own-node";
    const changed = new Set<string>();
    const listed = new Set(nodes.map(({ uid }) => uid));
    for (const node of [...this.#nodes.values()]) if (!listed.has(node.uid)) this.#remove(node, changed);
    const garbage = new Garbage(NODES_OF_A_MEGABYTE);
    for (const node of nodes) {
      this.#put(node, changed);
      garbage.step();
    }
    return this.#changes(changed);
  }

  apply(type: "ADDED" | "MODIFIED" | "DELETED", node: ClusterNode): NodeChanges {
    const changed = new Set<string>();
    const known = this.#nodes.get(node.uid);
    if (type !== "DELETED") this.#put(node, changed);
    else if (known && known !== this.#own) this.#remove(known, changed);
    return this.#changes(changed);
  }

  get peerCount(): number {
    return this.#nodes.size - (this.#own && this.#nodes.has(this.#own.uid) ? 1 : 0);
  }

  /** Every node but this one. */
  *peers(): Generator<ClusterNode> {
    for (const node of this.#nodes.values()) if (node !== this.#own) yield this.#withoutTakenRanges(node);
  }

  /** As {@linkcode peers}, for one of the changes: `undefined` if it is gone. */
  peer(uid: string): ClusterNode | undefined {
    const node = this.#nodes.get(uid);
    return node && node !== this.#own ? this.#withoutTakenRanges(node) : undefined;
  }

  /** Those of which the API has no address any more. Each has its last ones. */
  withLostAddresses(): ClusterNode[] {
    return Array.from(this.#withoutAddress, (uid) => this.#nodes.get(uid)!);
  }

  conflicts(): Conflict[] {
    return [...this.#contested].flatMap((uid) => {
      const node = this.#nodes.get(uid)!;
      const conflictsOf = (range: PodRange) =>
        this.#olderOwners(range).map((other) => ({ node, other, cidr: range.cidr }));
      return this.#ranges.of(node).flatMap(conflictsOf);
    });
  }

  #put(told: ClusterNode, changed: Set<string>): void {
    const known = this.#nodes.get(told.uid);
    // Whoever sets a Node's addresses may take all of them away for a moment. The node still has them.
    const isLost = known !== undefined && known.addresses.length > 0 && told.addresses.length === 0;
    const node = isLost ? { ...told, addresses: known.addresses } : told;
    if (!known || !isSameNode(known, node)) this.#putAgain(known, node, changed);
    // It may be for ever.
    if (isLost) this.#withoutAddress.add(node.uid);
    else this.#withoutAddress.delete(node.uid);
  }

  #putAgain(known: ClusterNode | undefined, node: ClusterNode, changed: Set<string>): void {
    const isOwn = node.name === this.#ownName;
    if (known) this.#remove(known, changed);
    else if (isOwn && this.#own && this.#nodes.has(this.#own.uid)) this.#remove(this.#own, changed);
    if (isOwn) this.#own = node;
    this.#nodes.set(node.uid, node);
    this.#ranges.add(node);
    changed.add(node.uid);
    const others = this.#overlapping(node);
    if (others.length > 0) this.#compareAgain([node, ...others], changed);
  }

  #remove(node: ClusterNode, changed: Set<string>): void {
    const others = this.#overlapping(node);
    this.#nodes.delete(node.uid);
    this.#ranges.remove(node);
    this.#contested.delete(node.uid);
    this.#withoutAddress.delete(node.uid);
    changed.add(node.uid);
    this.#compareAgain(others, changed);
  }

  #compareAgain(nodes: readonly ClusterNode[], changed: Set<string>): void {
    for (const node of nodes) {
      changed.add(node.uid);
      if (this.#overlapping(node).length > 0) this.#contested.add(node.uid);
      else this.#contested.delete(node.uid);
    }
  }

  #overlapping(node: ClusterNode): ClusterNode[] {
    return this.#ranges.of(node).flatMap((range) => this.#ranges.overlapping(range).map((other) => other.node));
  }

  #withoutTakenRanges(node: ClusterNode): ClusterNode {
    if (!this.#contested.has(node.uid)) return node;
    const free = this.#ranges.of(node).filter((range) => this.#olderOwners(range).length === 0);
    return { ...node, podCidrs: free.map(({ cidr }) => cidr) };
  }

  /** Nodes that keep their routes, although `range` is of another one. */
  #olderOwners(range: PodRange): ClusterNode[] {
    return this.#ranges.overlapping(range).map(({ node }) => node).filter((other) => isOlder(other, range.node));
  }

  #changes(changed: Set<string>): NodeChanges {
    if (changed.size === 0) return NO_CHANGES;
    const own = this.#own !== undefined && changed.delete(this.#own.uid);
    return { own, peers: changed };
  }
}

function isOlder(a: ClusterNode, b: ClusterNode): boolean {
  return a.createdAtMs === b.createdAtMs ? a.uid < b.uid : a.createdAtMs < b.createdAtMs;
}
