/** Questions over TCP. @see RFC 7766 */
import type { EventPoll } from "../../../ffi/sys/event_poll.ts";
import { ignoreSystemErrors } from "../../../ffi/sys/error.ts";
import type { Descriptor } from "../../../ffi/sys/file.ts";
import { acceptFrom, receiveBytes, sendBytes, sockaddrIp } from "../../../ffi/sys/inet_socket.ts";
import type { Acceptor } from "./acceptor.ts";
import { type Asker, newShares } from "./shares.ts";
import { MAX_TCP_BYTES, read16, write16 } from "./wire.ts";

const IDLE_MS = 10_000;
const LIMITS = { total: 200, ofContainer: 20, ofStrangers: 20 };
const MAX_QUESTION_BYTES = 4 * 1024;

/** @param send takes the answer, now or later @returns false to hang up */
export type OnQuestion = (message: Uint8Array, sockaddr: Uint8Array, send: (message: Uint8Array) => void) => boolean;

/** Who connects to a listener. */
export interface Clients {
  /** By which they come. */
  readonly link: string;
  isContainer(sockaddr: Uint8Array): boolean;
  readonly onQuestion: OnQuestion;
}

export interface Connections {
  /** Accepts connections, until the result is disposed of. */
  serve(listener: Descriptor, clients: Clients): Disposable;
  /** By `performance.now()`; `Infinity` if nothing is due. */
  deadline(): number;
  /** Hangs up on those that say nothing. */
  expire(): void;
}

interface Connection extends Asker {
  readonly socket: Descriptor;
  /** What came, without the questions that were taken. */
  input: Uint8Array;
  /** What the client does not take yet. */
  output: Uint8Array;
  deadline: number;
}

export function newConnections(poll: EventPoll, acceptor: Acceptor): Connections {
  const connections = new Set<Connection>();
  const shares = newShares<Connection>(LIMITS);

  const hangUp = (connection: Connection) => {
    if (!connections.delete(connection)) return;
    shares.leave(connection);
    poll.forget(connection.socket.fd);
    connection.socket[Symbol.dispose]();
  };
  const accept = (listener: number, { link, isContainer, onQuestion }: Clients) => {
    const accepted = acceptFrom(listener);
    if (!accepted) return;
    const { socket, sockaddr } = accepted;
    const connection: Connection = {
      socket,
      link,
      source: sockaddrIp(sockaddr),
      isContainer: isContainer(sockaddr),
      input: new Uint8Array(),
      output: new Uint8Array(),
      deadline: performance.now() + IDLE_MS,
    };
    connections.add(connection);
    const leaver = shares.enter(connection);
    if (leaver) hangUp(leaver);
    if (leaver === connection) return;
    ignoreSystemErrors(() => (poll.onReadable(socket.fd, () => read(connection, sockaddr, onQuestion)), true)) ??
      hangUp(connection);
    return undefined;
  };
  const read = (connection: Connection, sockaddr: Uint8Array, onQuestion: OnQuestion) => {
    const { fd } = connection.socket;
    const buffer = new Uint8Array(MAX_QUESTION_BYTES);
    const count = receiveBytes(fd, buffer);
    if (count === undefined) return;
    if (count === 0) return hangUp(connection);
    connection.deadline = performance.now() + IDLE_MS;
    connection.input = Buffer.concat([connection.input, buffer.subarray(0, count)]);
    while (connection.input.length >= 2 && connections.has(connection)) {
      const length = read16(connection.input, 0);
      if (length > MAX_QUESTION_BYTES) return hangUp(connection);
      if (connection.input.length < 2 + length) return;
      const question = connection.input.subarray(2, 2 + length);
      connection.input = connection.input.slice(2 + length);
      const resume = () => read(connection, sockaddr, onQuestion);
      if (!onQuestion(question, sockaddr, (message) => write(connection, message, resume))) return hangUp(connection);
    }
  };
  const write = (connection: Connection, message: Uint8Array, resume: () => void) => {
    if (!connections.has(connection)) return;
    const isWaiting = connection.output.length > 0;
    const prefix = new Uint8Array(2);
    write16(prefix, 0, message.length);
    connection.output = Buffer.concat([connection.output, prefix, message]);
    // A client that reads nothing may not fill the memory.
    if (connection.output.length > 4 * MAX_TCP_BYTES) return hangUp(connection);
    if (isWaiting || flush(connection) !== "waiting") return;
    const { fd } = connection.socket;
    poll.forget(fd);
    poll.onWritable(fd, () => {
      if (flush(connection) !== "written") return;
      poll.forget(fd);
      poll.onReadable(fd, resume);
    });
  };
  /** `gone`: the client, and the connection is closed. */
  const flush = (connection: Connection): "written" | "waiting" | "gone" => {
    const sent = sendBytes(connection.socket.fd, connection.output);
    if (sent === 0) {
      hangUp(connection);
      return "gone";
    }
    connection.output = connection.output.subarray(sent ?? 0);
    return connection.output.length === 0 ? "written" : "waiting";
  };

  return {
    serve: ({ fd }, clients) => acceptor.listen(fd, () => accept(fd, clients)),
    deadline: () => Math.min(Infinity, ...[...connections].map(({ deadline }) => deadline)),
    expire() {
      const now = performance.now();
      for (const connection of [...connections]) if (connection.deadline <= now) hangUp(connection);
    },
  };
}
