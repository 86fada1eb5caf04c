/** The places at which containers ask, for as long as records need them. */
import type { Ip } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import type { ListenProblem } from "../protocol.ts";
import type { NameRecord, NameServer } from "../record.ts";
import { ListenPlace, type SocketHandlers } from "./place.ts";

/** After a boot, another program may have the port for a moment. */
const RETRY_MS = 5000;

export class Listeners {
  readonly #host: Netns;
  readonly #handlers: SocketHandlers;
  readonly #places = new Map<string, ListenPlace>();
  #retryAt = Infinity;

  constructor(host: Netns, handlers: SocketHandlers) {
    this.#host = host;
    this.#handlers = handlers;
  }

  /** Listens where the record says; for every one that is released later. */
  acquire({ owner, servers }: NameRecord): void {
    for (const server of servers) {
      const known = this.#find(server);
      const place = known ?? new ListenPlace(server, this.#handlers);
      place.acquire(owner.network);
      if (known) continue;
      this.#places.set(keyOf(server), place);
      this.#open(place);
    }
  }

  release({ owner, servers }: NameRecord): void {
    for (const server of servers) {
      const place = this.#find(server);
      if (!place?.release(owner.network)) continue;
      place[Symbol.dispose]();
      this.#places.delete(keyOf(server));
    }
  }

  /** Looks whether the links are still those on which it listens, and tries again where there was a problem. */
  refresh({ servers }: NameRecord): void {
    for (const server of servers) {
      const place = this.#find(server);
      if (place) this.#open(place);
    }
  }

  problemsOf({ servers }: NameRecord): ListenProblem[] {
    return servers.flatMap((server) => this.#find(server)?.problems ?? []);
  }

  /** When to try again where there is a problem. */
  deadline(): number {
    return this.#retryAt;
  }

  expire(): void {
    if (this.#retryAt > performance.now()) return;
    this.#retryAt = Infinity;
    for (const place of this.#places.values()) if (!place.isOpen) this.#open(place);
  }

  isListening(address: Ip): boolean {
    return [...this.#places.values()].some((place) => place.address === address);
  }

  #find(server: NameServer): ListenPlace | undefined {
    return this.#places.get(keyOf(server));
  }

  #open(place: ListenPlace): void {
    place.open(this.#host);
    if (place.problems.length > 0) this.#retryAt = Math.min(this.#retryAt, performance.now() + RETRY_MS);
  }
}

const keyOf = ({ address, device }: NameServer): string => `${device} ${address}`;
