import type { Cidr } from "../../ffi/address.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import type { ClusterNode } from "../node.ts";
import { DesiredElements } from "./desired_elements.ts";
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
  #elements = new DesiredElements();
  #lengths: PrefixLengths = prefixLengthsOf([]);
  /** Whether the kernel may differ. */
  isDue = true;

  constructor(nl: Netlink, settings: ClusterSettings) {
    this.#nl = nl;
    this.#settings = settings;
  }

  replace(own: ClusterNode, peers: readonly ClusterNode[], formerOwnCidrs: readonly Cidr[]): void {
    this.#lengths = prefixLengthsOf(peers);
    this.#elements = new DesiredElements();
    this.#elements.add(ownElements(own, formerOwnCidrs, this.#settings));
    for (const node of [own, ...peers]) this.#elements.add(elementsOfNode(own, node));
    this.isDue = true;
  }

  /** @returns what differed, if anything @throws {SystemError} */
  sync(): string | undefined {
    if (!this.isDue) return undefined;
    const difference = syncRuleset(this.#nl, this.#settings, this.#lengths, this.#elements);
    this.isDue = false;
    return difference;
  }

  /** @throws {SystemError} */
  update(own: ClusterNode, former: ClusterNode | undefined, node: ClusterNode | undefined): void {
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
