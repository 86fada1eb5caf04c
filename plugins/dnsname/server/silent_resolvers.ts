/** Resolvers that did not answer in time: for a while, the others are asked first. */
import type { Ip } from "../../../ffi/address.ts";
import type { SocketEndpoint } from "../../../ffi/sys/inet_socket.ts";

const SILENCE_MS = 30_000;

export class SilentResolvers {
  readonly #until = new Map<Ip, number>();

  add({ address }: SocketEndpoint): void {
    this.#until.set(address, performance.now() + SILENCE_MS);
  }

  remove({ address }: SocketEndpoint): void {
    this.#until.delete(address);
  }

  sortLast(resolvers: readonly SocketEndpoint[]): SocketEndpoint[] {
    const now = performance.now();
    const isSilent = ({ address }: SocketEndpoint) => (this.#until.get(address) ?? 0) > now;
    return [...resolvers.filter((resolver) => !isSilent(resolver)), ...resolvers.filter(isSilent)];
  }
}
