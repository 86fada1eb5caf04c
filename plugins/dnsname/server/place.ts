/** An address of a link at which containers ask, with its sockets: one for UDP, one for TCP. */
import type { Ip } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import * as link from "../../../ffi/route/link.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import type { Descriptor } from "../../../ffi/sys/file.ts";
import { listenTcp, listenUdp } from "../../../ffi/sys/inet_socket.ts";
import { DNS_PORT, type ListenProblem } from "../protocol.ts";
import type { NameServer } from "../record.ts";

export interface SocketHandlers {
  /** Takes what arrives, until the result is disposed of. */
  serveUdp(socket: Descriptor, place: ListenPlace): Disposable;
  serveTcp(socket: Descriptor, place: ListenPlace): Disposable;
}

const PROTOCOLS = [["udp", listenUdp, "serveUdp"], ["tcp", listenTcp, "serveTcp"]] as const;

export class ListenPlace implements NameServer, Disposable {
  readonly address: Ip;
  readonly device: string;
  /** How many records of each network need it. */
  readonly #records = new Map<string, number>();
  readonly #handlers: SocketHandlers;
  #linkIndex: number | undefined;
  #sockets: Disposable | undefined;
  #problems: readonly ListenProblem[] = [];

  constructor({ address, device }: NameServer, handlers: SocketHandlers) {
    this.address = address;
    this.device = device;
    this.#handlers = handlers;
  }

  get networks(): string[] {
    return [...this.#records.keys()];
  }

  /** Another one may have got the name of a link that was removed. */
  get linkIndex(): number | undefined {
    return this.#linkIndex;
  }

  get problems(): readonly ListenProblem[] {
    return this.#problems;
  }

  get isOpen(): boolean {
    return this.#sockets !== undefined && this.#problems.length === 0;
  }

  acquire(network: string): void {
    this.#records.set(network, (this.#records.get(network) ?? 0) + 1);
  }

  /** @returns whether no record needs the place any more */
  release(network: string): boolean {
    const left = (this.#records.get(network) ?? 0) - 1;
    left > 0 ? this.#records.set(network, left) : this.#records.delete(network);
    return this.#records.size === 0;
  }

  /** Opens the sockets, unless they are open on that link. */
  open(host: Netns): void {
    this.#problems = [];
    try {
      const linkIndex = link.find(host.route, this.device)?.index;
      if (this.#sockets && this.#linkIndex === linkIndex) return;
      this[Symbol.dispose]();
      this.#linkIndex = linkIndex;
    } catch (error) {
      return this.#addProblem("udp", error);
    }
    this.#openSockets();
  }

  [Symbol.dispose](): void {
    this.#sockets?.[Symbol.dispose]();
    this.#sockets = undefined;
  }

  #openSockets(): void {
    using sockets = new DisposableStack();
    const { address, device } = this;
    for (const [protocol, listen, serve] of PROTOCOLS) {
      try {
        const socket = sockets.use(listen({ address, device, port: DNS_PORT }));
        sockets.use(this.#handlers[serve](socket, this));
      } catch (error) {
        this.#addProblem(protocol, error);
      }
    }
    // One without the other would leave long answers, or most questions, without an answer.
    if (this.#problems.length === 0) this.#sockets = sockets.move();
  }

  #addProblem(protocol: ListenProblem["protocol"], error: unknown): void {
    if (!(error instanceof SystemError)) throw error;
    const { code, message } = error;
    const { address, device } = this;
    this.#problems = [...this.#problems, { address, device, protocol, code, message }];
  }
}
