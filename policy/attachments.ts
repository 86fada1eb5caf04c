/** Which addresses are attached: the guard tells, and while it is lost, the links of pods do. @module */
import type { Ip } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import type { Netlink } from "../ffi/netlink/socket.ts";
import * as link from "../ffi/route/link.ts";
import { type AttachedAddress, readGuard } from "../plugins/lib/policy/attached_pods.ts";

export class Attachments {
  readonly #nft: Netlink;
  readonly #route: Netlink;
  #table: bigint | undefined;
  #attached: readonly AttachedAddress[] = [];
  /** What a guard had that somebody has removed: no DEL has. */
  readonly #lost = new Map<Ip, AttachedAddress>();

  constructor({ nft, route }: Netns) {
    this.#nft = nft;
    this.#route = route;
  }

  /** @returns `isWhole`: what DELs have removed is all that the kernel has lost since the last look */
  look(): { readonly attached: readonly AttachedAddress[]; readonly isWhole: boolean } {
    const { attached, table } = readGuard(this.#nft);
    const isSameTable = table === this.#table;
    const removed = isSameTable ? [] : this.#attached;
    for (const each of removed) this.#lost.set(each.ip, each);
    this.#table = table;
    for (const { ip } of attached) this.#lost.delete(ip);
    const ended = [...this.#lost.values()].filter(({ interface: name }) => !link.find(this.#route, name));
    for (const { ip } of ended) this.#lost.delete(ip);
    this.#attached = [...attached, ...this.#lost.values()];
    return { attached: this.#attached, isWhole: isSameTable && ended.length === 0 };
  }
}
