import type { Cidr } from "../../ffi/address.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import type { ClusterNode } from "../node.ts";
import {
  changeElements,
  elementsOfNode,
  isContested,
  isCovered,
  type IsShared,
  listUplinks,
  ownElements,
  type PrefixLengths,
  prefixLengthsOf,
  syncRuleset,
  uplinkElements,
} from "./ruleset.ts";
import type { SetElement } from "./set_element.ts";
import type { ClusterSettings } from "./settings.ts";

/** What masquerading and the tunnel's guard should be. */
export class ClusterRules {
  readonly #nl: Netlink;
  readonly #settings: ClusterSettings;
  readonly #peers: () => Iterable<ClusterNode>;
  #own: ClusterNode | undefined;
  #formerOwnCidrs: readonly Cidr[] = [];
  #lengths: PrefixLengths = prefixLengthsOf([]);
  #hasPort = false;
  /** Absent until they are known: those in the kernel stay. */
  #uplinks: ReadonlySet<number> | undefined;
  /** Whether the kernel may differ. */
  isDue = true;

  /** @param peers as they are at each call */
  constructor(nl: Netlink, settings: ClusterSettings, peers: () => Iterable<ClusterNode>) {
    this.#nl = nl;
    this.#settings = settings;
    this.#peers = peers;
  }

  replace(own: ClusterNode, formerOwnCidrs: readonly Cidr[]): void {
    this.#own = own;
    this.#formerOwnCidrs = formerOwnCidrs;
    this.#lengths = prefixLengthsOf(this.#peers());
    this.isDue = true;
  }

  /**
   * @param hasPort whether the tunnel's port is this program's, and nobody else's
   * @returns what differed, if anything
   * @throws {SystemError}
   */
  sync(hasPort: boolean): string | undefined {
    this.isDue ||= hasPort !== this.#hasPort;
    this.#hasPort = hasPort;
    if (!this.isDue) return undefined;
    this.#uplinks ??= listUplinks(this.#nl);
    const difference = syncRuleset(this.#nl, this.#settings, this.#lengths, hasPort, this.#desired());
    this.isDue = false;
    return difference;
  }

  *#desired(): Iterable<SetElement> {
    const own = this.#own!;
    yield* elementsOfNode(own, own);
    const contested: Cidr[] = [];
    // One after the other: whoever takes the elements collects garbage between.
    for (const node of this.#peers()) {
      contested.push(...node.podCidrs.filter((cidr) => isContested(own, cidr)));
      yield* elementsOfNode(own, node);
    }
    yield* ownElements(own, this.#formerOwnCidrs, contested, this.#settings);
    yield* uplinkElements(this.#uplinks!);
  }

  /** Routes are read when rules are there already. @throws {SystemError} */
  setUplinks(uplinks: ReadonlySet<number>): void {
    const former = this.#uplinks!;
    this.#uplinks = uplinks;
    if (this.isDue || former.symmetricDifference(uplinks).size === 0) return;
    this.isDue = true;
    changeElements(this.#nl, uplinkElements(former), uplinkElements(uplinks));
    this.isDue = false;
  }

  /** @param former what some peers were, or still are @param isShared of all other peers @throws {SystemError} */
  update(former: readonly ClusterNode[], nodes: readonly ClusterNode[], isShared: IsShared): void {
    const own = this.#own!;
    const all = [...former, ...nodes];
    const lengths = prefixLengthsOf(all);
    // Of nodes with one range, which one has it shows only if all are looked at.
    const isDisputed = (cidr: Cidr) => isShared(cidr) || isContested(own, cidr);
    this.isDue ||= !isCovered(this.#lengths, lengths) || all.some(({ podCidrs }) => podCidrs.some(isDisputed));
    this.#lengths = { 4: this.#lengths[4].union(lengths[4]), 6: this.#lengths[6].union(lengths[6]) };
    if (this.isDue) return void this.sync(this.#hasPort);
    const elementsOf = (some: readonly ClusterNode[]) => some.flatMap((each) => elementsOfNode(own, each, isShared));
    // If the kernel refuses, the next comparison is of all.
    this.isDue = true;
    changeElements(this.#nl, elementsOf(former), elementsOf(nodes));
    this.isDue = false;
  }
}
