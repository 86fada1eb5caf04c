/** Asks the host's resolvers what no network knows. */
import { SystemError } from "../../../ffi/sys/error.ts";
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
import type { AnswerKind } from "./answer_counters.ts";
import { newAnswerCache } from "./cache.ts";
import type { Resolvers } from "./resolvers.ts";
import { type Asker, newShares } from "./shares.ts";
import {
  addressAnswer,
  answersQuery,
  HEADER_BYTES,
  isTruncatedAnswer,
  MAX_TCP_BYTES,
  queryKey,
  type Question,
  RCODE,
  rcodeOf,
  read16,
  write16,
  writeAnswer,
  writeQuery,
} from "./wire.ts";

/** The C library's resolver waits for 5 s. */
const MAX_ATTEMPT_MS = 2000;
const MAX_TOTAL_MS = 8000;
const ROUNDS = 2;
/** For so long, a resolver that was silent is asked last. */
const SILENCE_MS = 30_000;
/** Each of those who wait may need a socket. */
const LIMITS = { total: 2000, ofContainer: 200, ofStrangers: 50 };

/** Somebody who waits for an answer. */
export interface Client extends Asker {
  readonly question: Question;
  readonly maxBytes: number;
  send(message: Uint8Array): void;
}

export interface Forwarder {
  /** Answers at once where it can. */
  ask(client: Client): void;
  /** By `performance.now()`; `Infinity` if nothing is due. */
  deadline(): number;
  /** Gives up what is overdue. */
  expire(): void;
}

interface Pending {
  readonly key: string;
  /** Of the first client. */
  readonly question: Question;
  readonly clients: Set<Client>;
  /** Resolvers to ask, the next one first. */
  readonly queue: SocketEndpoint[];
  readonly attemptMs: number;
  resolver: SocketEndpoint | undefined;
  socket: Descriptor | undefined;
  deadline: number;
  /** An error of a resolver, for the case that the others say no more. */
  lastAnswer: Uint8Array | undefined;
}

export interface ForwarderOptions {
  readonly poll: EventPoll;
  /** Reads the host's file again if it changed. */
  readonly resolvers: Resolvers;
  /** Whether the server itself answers there: to ask it would go on for ever. */
  isOwn(resolver: SocketEndpoint): boolean;
  /** Takes who answered a question. */
  count(answer: AnswerKind): void;
}

export function newForwarder({ poll, resolvers, isOwn, count: countAnswer }: ForwarderOptions): Forwarder {
  const cache = newAnswerCache();
  const pendings = new Map<string, Pending>();
  const pendingOf = new Map<Client, Pending>();
  const shares = newShares<Client>(LIMITS);
  const silentUntil = new Map<string, number>();
  const buffer = new Uint8Array(MAX_TCP_BYTES + 2);

  const closeSocket = (pending: Pending) => {
    if (!pending.socket) return;
    poll.forget(pending.socket.fd);
    pending.socket[Symbol.dispose]();
    pending.socket = undefined;
  };
  const forget = (pending: Pending) => {
    closeSocket(pending);
    pendings.delete(pending.key);
  };
  const finish = (pending: Pending, answer: Uint8Array | undefined) => {
    forget(pending);
    if (answer) cache.store(pending.key, pending.question, answer, performance.now());
    for (const client of pending.clients) {
      shares.leave(client);
      pendingOf.delete(client);
      countAnswer(answer ? "resolver" : "failure");
      answer ? sendAnswer(client, answer) : sendFailure(client);
    }
  };
  const fail = (client: Client) => {
    countAnswer("failure");
    sendFailure(client);
  };
  const giveWay = (client: Client) => {
    const pending = pendingOf.get(client);
    fail(client);
    if (!pending) return;
    pendingOf.delete(client);
    pending.clients.delete(client);
    if (pending.clients.size === 0) forget(pending);
  };
  let known: readonly SocketEndpoint[] | undefined;
  const listResolvers = (): SocketEndpoint[] => {
    const now = performance.now();
    const all = resolvers.list();
    // Others may give other answers.
    if (known !== all) cache.clear();
    known = all;
    const usable = all.filter((resolver) => !isOwn(resolver));
    const isSilent = ({ address }: SocketEndpoint) => (silentUntil.get(address) ?? 0) > now;
    return [...usable.filter((resolver) => !isSilent(resolver)), ...usable.filter(isSilent)];
  };

  const askNext = (pending: Pending) => {
    closeSocket(pending);
    for (;;) {
      const resolver = pending.queue.shift();
      pending.resolver = resolver;
      if (!resolver) return finish(pending, pending.lastAnswer);
      try {
        return askOverUdp(pending, resolver);
      } catch (error) {
        // No route, or a firewall.
        if (!(error instanceof SystemError)) throw error;
        closeSocket(pending);
      }
    }
  };
  const askOverUdp = (pending: Pending, resolver: SocketEndpoint) => {
    const query = writeQuery(pending.question, randomId());
    const socket = connectUdp(resolver);
    pending.socket = socket;
    pending.deadline = performance.now() + pending.attemptMs;
    poll.onReadable(socket.fd, () => {
      const length = receiveBytes(socket.fd, buffer);
      if (length === undefined) return;
      // Refused, or unreachable.
      if (length === 0) return askNext(pending);
      const answer = buffer.subarray(0, length);
      if (!answersQuery(answer, query, pending.question)) return;
      if (isTruncatedAnswer(answer)) return askOverTcp(pending, resolver, answer.slice());
      takeAnswer(pending, resolver, answer);
    });
    sendBytes(socket.fd, query);
  };
  const takeAnswer = (pending: Pending, resolver: SocketEndpoint, answer: Uint8Array) => {
    silentUntil.delete(resolver.address);
    const rcode = rcodeOf(answer);
    if (rcode === RCODE.NOERROR || rcode === RCODE.NXDOMAIN) return finish(pending, answer);
    pending.lastAnswer = answer.slice();
    // It has said all that it will say.
    const others = pending.queue.filter(({ address }) => address !== resolver.address);
    pending.queue.splice(0, pending.queue.length, ...others);
    askNext(pending);
  };
  /** @param truncated is better than nothing */
  const askOverTcp = (pending: Pending, resolver: SocketEndpoint, truncated: Uint8Array) => {
    closeSocket(pending);
    const query = writeQuery(pending.question, randomId());
    const message = new Uint8Array(query.length + 2);
    write16(message, 0, query.length);
    message.set(query, 2);
    const giveUp = () => finish(pending, truncated);
    let socket: Descriptor;
    try {
      socket = connectTcp(resolver);
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      return giveUp();
    }
    pending.socket = socket;
    pending.lastAnswer = truncated;
    pending.queue.length = 0;
    pending.deadline = performance.now() + pending.attemptMs;
    const received = new Uint8Array(MAX_TCP_BYTES + 2);
    let length = 0;
    poll.onWritable(socket.fd, () => {
      // So few bytes go at once or never.
      if (takeSocketError(socket.fd) || sendBytes(socket.fd, message) !== message.length) return giveUp();
      poll.forget(socket.fd);
      poll.onReadable(socket.fd, () => {
        const count = receiveBytes(socket.fd, received.subarray(length));
        if (count === undefined) return;
        if (count === 0) return giveUp();
        length += count;
        if (length < 2 || length < 2 + read16(received, 0)) return;
        const answer = received.subarray(2, 2 + read16(received, 0));
        answersQuery(answer, query, pending.question) ? takeAnswer(pending, resolver, answer) : giveUp();
      });
    });
  };

  return {
    ask(client) {
      const queue = listResolvers();
      const key = queryKey(client.question);
      const cached = cache.find(key, performance.now());
      if (cached) {
        countAnswer("cache");
        return sendAnswer(client, cached);
      }
      if (queue.length === 0) return fail(client);
      const leaver = shares.enter(client);
      if (leaver) giveWay(leaver);
      if (leaver === client) return;
      const existing = pendings.get(key);
      if (existing) {
        existing.clients.add(client);
        pendingOf.set(client, existing);
        return;
      }
      const attempts = Array.from({ length: ROUNDS }, () => queue).flat();
      const attemptMs = Math.min(MAX_ATTEMPT_MS, MAX_TOTAL_MS / attempts.length);
      const pending: Pending = {
        key,
        question: client.question,
        clients: new Set([client]),
        queue: attempts,
        attemptMs,
        resolver: undefined,
        socket: undefined,
        deadline: Infinity,
        lastAnswer: undefined,
      };
      pendings.set(key, pending);
      pendingOf.set(client, pending);
      askNext(pending);
    },
    deadline() {
      let earliest = Infinity;
      for (const { deadline } of pendings.values()) if (deadline < earliest) earliest = deadline;
      return earliest;
    },
    expire() {
      const now = performance.now();
      for (const pending of [...pendings.values()]) {
        if (pending.deadline > now) continue;
        if (pending.resolver) silentUntil.set(pending.resolver.address, now + SILENCE_MS);
        askNext(pending);
      }
    },
  };
}

function sendAnswer({ question, maxBytes, send }: Client, answer: Uint8Array): void {
  send(addressAnswer(answer, question, maxBytes));
}

function sendFailure({ question, maxBytes, send }: Client): void {
  send(writeAnswer(question, RCODE.SERVFAIL, [], Math.max(maxBytes, HEADER_BYTES)));
}

const randomId = (): number => crypto.getRandomValues(new Uint16Array(1))[0]!;
