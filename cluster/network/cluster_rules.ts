import type { Cidr } from "../../ffi/address.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import type { ClusterNode } from "../node.ts";
import { DesiredElements, type SetElement } from "./desired_elements.ts";
import {
  changeElements,
  elementsOfNode,
  isCovered,
  ownElements,
  type PrefixLengths,
  prefixLengthsOf,
  syncRuleset,
} from "./ruleset.ts";
import type { ClusterSettings } from "./settings.ts";

/** What masquerading and the tunnel's guard should be. */
export class ClusterRules {
  readonly #nl: Netlink;
  readonly #settings: ClusterSettings;
  readonly #peers: () => Iterable<ClusterNode>;
  #own: ClusterNode | undefined;
  #formerOwnCidrs: readonly Cidr[] = [];
  #elements = new DesiredElements();
  #lengths: PrefixLengths = prefixLengthsOf([]);
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
    this.#elements = new DesiredElements();
    this.#elements.add([...this.#desired()]);
    this.isDue = true;
  }

  /** @returns what differed, if anything @throws {SystemError} */
  sync(): string | undefined {
    if (!this.isDue) return undefined;
    const difference = syncRuleset(this.#nl, this.#settings, this.#lengths, () => this.#desired());
    this.isDue = false;
    return difference;
  }

  *#desired(): Iterable<SetElement> {
    const own = this.#own!;
    yield* ownElements(own, this.#formerOwnCidrs, this.#settings);
    yield* elementsOfNode(own, own);
    for (const node of this.#peers()) yield* elementsOfNode(own, node);
  }

  /** @throws {SystemError} */
  update(former: ClusterNode | undefined, node: ClusterNode | undefined): void {
    const own = this.#own!;
    // In this order, what both have stays.
    const added = node ? this.#elements.add(elementsOfNode(own, node)) : [];
    const removed = former ? this.#elements.remove(elementsOfNode(own, former)) : [];
    if (node && !isCovered(this.#lengths, node)) {
      this.#lengths = {
        4: this.#lengths[4].union(prefixLengthsOf([node])[4]),
        6: this.#lengths[6].union(prefixLengthsOf([node])[6]),
      };
      this.isDue = true;
    }
    if (this.isDue) return void this.sync();
    this.isDue = true;
    changeElements(this.#nl, removed, added);
    this.isDue = false;
  }
}
