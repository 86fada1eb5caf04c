/** All TCP connections: how many a client may have, and when one is given up. */
import type { EventPoll } from "../../../ffi/sys/event_poll.ts";
import type { Descriptor } from "../../../ffi/sys/file.ts";
import { acceptFrom } from "../../../ffi/sys/inet_socket.ts";
import type { Acceptor } from "./acceptor.ts";
import { type OnQuestion, TcpConnection } from "./tcp_connection.ts";
import { Shares } from "./shares.ts";

const LIMITS = { total: 200, ofContainer: 20, ofStrangers: 20 };

export interface Clients {
  readonly link: string;
  isContainer(sockaddr: Uint8Array): boolean;
  readonly onQuestion: OnQuestion;
}

export class Connections {
  readonly #poll: EventPoll;
  readonly #acceptor: Acceptor;
  readonly #open = new Set<TcpConnection>();
  readonly #shares = new Shares<TcpConnection>(LIMITS);

  constructor(poll: EventPoll, acceptor: Acceptor) {
    this.#poll = poll;
    this.#acceptor = acceptor;
  }

  serve({ fd }: Descriptor, clients: Clients): Disposable {
    return this.#acceptor.listen(fd, () => this.#accept(fd, clients));
  }

  deadline(): number {
    return Math.min(Infinity, ...[...this.#open].map(({ deadline }) => deadline));
  }

  /** Hangs up on those that say nothing. */
  expire(): void {
    const now = performance.now();
    for (const connection of [...this.#open]) if (connection.deadline <= now) connection.hangUp();
  }

  #accept(listener: number, { link, isContainer, onQuestion }: Clients): void {
    const accepted = acceptFrom(listener);
    if (!accepted) return;
    const { socket, sockaddr } = accepted;
    const connection = new TcpConnection({
      poll: this.#poll,
      socket,
      sockaddr,
      link,
      isContainer: isContainer(sockaddr),
      onQuestion,
      onClose: (closed) => this.#remove(closed),
    });
    this.#open.add(connection);
    const leaver = this.#shares.enter(connection);
    leaver?.hangUp();
    if (leaver !== connection) connection.start();
  }

  #remove(connection: TcpConnection): void {
    this.#open.delete(connection);
    this.#shares.leave(connection);
  }
}
