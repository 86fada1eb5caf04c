/** Asks the host's resolvers what no network knows: a question of several clients once, and no sooner than needed. */
import type { EventPoll } from "../../../ffi/sys/event_poll.ts";
import type { SocketEndpoint } from "../../../ffi/sys/inet_socket.ts";
import type { AnswerKind } from "./answer_counters.ts";
import { newAnswerCache } from "./cache.ts";
import { ResolverQuery } from "./resolver_query.ts";
import { ResolverSockets } from "./resolver_sockets.ts";
import type { Resolvers } from "./resolvers.ts";
import { type Asker, Shares } from "./shares.ts";
import { SilentResolvers } from "./silent_resolvers.ts";
import { addressAnswer, HEADER_BYTES, queryKey, type Question, RCODE, writeAnswer } from "./wire.ts";

/** Each of those who wait may need a socket. */
const LIMITS = { total: 2000, ofContainer: 200, ofStrangers: 50 };

export interface Client extends Asker {
  readonly question: Question;
  readonly maxBytes: number;
  send(message: Uint8Array): void;
}

export interface ForwarderOptions {
  readonly poll: EventPoll;
  /** Reads the host's file again if it changed. */
  readonly resolvers: Resolvers;
  /** Whether the server itself answers there: to ask it would go on for ever. */
  isOwn(resolver: SocketEndpoint): boolean;
  count(answer: AnswerKind): void;
}

interface Pending {
  readonly query: ResolverQuery;
  readonly clients: Set<Client>;
}

export class Forwarder {
  readonly #options: ForwarderOptions;
  readonly #sockets: ResolverSockets;
  readonly #cache = newAnswerCache();
  /** The keys are those of {@linkcode queryKey}, so equal questions wait together. */
  readonly #pendings = new Map<string, Pending>();
  readonly #shares = new Shares<Client>(LIMITS);
  readonly #silent = new SilentResolvers();
  /** Those whose answers the cache has. */
  #known: readonly SocketEndpoint[] | undefined;

  constructor(options: ForwarderOptions) {
    this.#options = options;
    this.#sockets = new ResolverSockets(options.poll);
  }

  /** Answers at once where it can. */
  ask(client: Client): void {
    const resolvers = this.#listResolvers();
    const cached = this.#cache.find(queryKey(client.question), performance.now());
    if (cached) return this.#answer(client, "cache", cached);
    if (resolvers.length === 0) return this.#fail(client);
    const leaver = this.#shares.enter(client);
    if (leaver) this.#giveWay(leaver);
    if (leaver !== client) this.#wait(client, resolvers);
  }

  deadline(): number {
    let earliest = Infinity;
    for (const { query } of this.#pendings.values()) earliest = Math.min(earliest, query.deadline);
    return earliest;
  }

  expire(): void {
    const now = performance.now();
    for (const { query } of [...this.#pendings.values()]) if (query.deadline <= now) query.expire();
  }

  #listResolvers(): SocketEndpoint[] {
    const { resolvers, isOwn } = this.#options;
    const all = resolvers.list();
    // Others may give other answers.
    if (this.#known !== all) this.#cache.clear();
    this.#known = all;
    return this.#silent.sortLast(all.filter((resolver) => !isOwn(resolver)));
  }

  #wait(client: Client, resolvers: readonly SocketEndpoint[]): void {
    const existing = this.#pendings.get(queryKey(client.question));
    existing ? existing.clients.add(client) : this.#startQuery(client, resolvers);
  }

  #startQuery(client: Client, resolvers: readonly SocketEndpoint[]): void {
    const { question } = client;
    const key = queryKey(question);
    const clients = new Set([client]);
    const query = new ResolverQuery({
      sockets: this.#sockets,
      question,
      resolvers,
      silent: this.#silent,
      onEnd: (answer) => {
        this.#pendings.delete(key);
        if (answer) this.#cache.store(key, question, answer, performance.now());
        this.#endWait(clients, answer);
      },
    });
    this.#pendings.set(key, { query, clients });
    query.askNext();
  }

  #endWait(clients: ReadonlySet<Client>, answer: Uint8Array | undefined): void {
    for (const client of clients) {
      this.#shares.leave(client);
      answer ? this.#answer(client, "resolver", answer) : this.#fail(client);
    }
  }

  #giveWay(client: Client): void {
    const key = queryKey(client.question);
    const pending = this.#pendings.get(key);
    this.#fail(client);
    if (!pending?.clients.delete(client) || pending.clients.size > 0) return;
    pending.query[Symbol.dispose]();
    this.#pendings.delete(key);
  }

  #answer({ question, maxBytes, send }: Client, kind: AnswerKind, answer: Uint8Array): void {
    this.#options.count(kind);
    send(addressAnswer(answer, question, maxBytes));
  }

  #fail({ question, maxBytes, send }: Client): void {
    this.#options.count("failure");
    send(writeAnswer(question, RCODE.SERVFAIL, [], Math.max(maxBytes, HEADER_BYTES)));
  }
}
