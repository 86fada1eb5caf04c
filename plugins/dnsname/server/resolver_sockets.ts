/** One question to one resolver, over UDP or over TCP. */
import type { EventPoll } from "../../../ffi/sys/event_poll.ts";
import type { Descriptor } from "../../../ffi/sys/file.ts";
import {
  connectTcp,
  connectUdp,
  receiveBytes,
  sendBytes,
  type SocketEndpoint,
  takeSocketError,
} from "../../../ffi/sys/inet_socket.ts";
import { answersQuery, MAX_TCP_BYTES, type Question, read16, withLengthPrefix, writeQuery } from "./wire.ts";

export interface ResolverExchange {
  readonly resolver: SocketEndpoint;
  readonly question: Question;
  /** Takes an answer, valid until it returns. */
  onAnswer(answer: Uint8Array): void;
  /** The resolver refused the question, hung up, or cannot be reached. */
  onFailure(): void;
}

/** Each question has a socket of its own, and so another random port. */
export class ResolverSockets {
  readonly #poll: EventPoll;
  readonly #buffer = new Uint8Array(MAX_TCP_BYTES);

  constructor(poll: EventPoll) {
    this.#poll = poll;
  }

  /** Waits for an answer until the result is disposed of. @throws {SystemError} without a route, or behind a firewall */
  askOverUdp({ resolver, question, onAnswer, onFailure }: ResolverExchange): Disposable {
    const query = writeQuery(question, randomId());
    using resources = new DisposableStack();
    const { fd } = this.#use(connectUdp(resolver), resources);
    this.#poll.onReadable(fd, () => {
      const length = receiveBytes(fd, this.#buffer);
      if (length === undefined) return;
      if (length === 0) return onFailure();
      const answer = this.#buffer.subarray(0, length);
      if (answersQuery(answer, query, question)) onAnswer(answer);
    });
    sendBytes(fd, query);
    return resources.move();
  }

  askOverTcp(exchange: ResolverExchange): Disposable {
    const query = writeQuery(exchange.question, randomId());
    const message = withLengthPrefix(query);
    using resources = new DisposableStack();
    const { fd } = this.#use(connectTcp(exchange.resolver), resources);
    this.#poll.onWritable(fd, () => {
      // So few bytes go at once or never.
      if (takeSocketError(fd) || sendBytes(fd, message) !== message.length) return exchange.onFailure();
      this.#poll.forget(fd);
      this.#poll.onReadable(fd, newTcpReader(fd, query, exchange));
    });
    return resources.move();
  }

  #use(socket: Descriptor, resources: DisposableStack): Descriptor {
    resources.use(socket);
    resources.defer(() => this.#poll.forget(socket.fd));
    return socket;
  }
}

function newTcpReader(fd: number, query: Uint8Array, { question, onAnswer, onFailure }: ResolverExchange): () => void {
  const received = new Uint8Array(MAX_TCP_BYTES + 2);
  let length = 0;
  return () => {
    const count = receiveBytes(fd, received.subarray(length));
    if (count === undefined) return;
    if (count === 0) return onFailure();
    length += count;
    if (length < 2 || length < 2 + read16(received, 0)) return;
    const answer = received.subarray(2, 2 + read16(received, 0));
    answersQuery(answer, query, question) ? onAnswer(answer) : onFailure();
  };
}

const randomId = (): number => crypto.getRandomValues(new Uint16Array(1))[0]!;
