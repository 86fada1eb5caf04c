/** One question, asked of one resolver after another until one answers. */
import { SystemError } from "../../../ffi/sys/error.ts";
import type { SocketEndpoint } from "../../../ffi/sys/inet_socket.ts";
import type { ResolverSockets } from "./resolver_sockets.ts";
import type { SilentResolvers } from "./silent_resolvers.ts";
import { isTruncatedAnswer, type Question, RCODE, rcodeOf } from "./wire.ts";

/** The C library's resolver waits for 5 s. */
const MAX_ATTEMPT_MS = 2000;
const MAX_TOTAL_MS = 8000;
const ROUNDS = 2;

export interface ResolverQueryOptions {
  readonly sockets: ResolverSockets;
  readonly question: Question;
  readonly resolvers: readonly SocketEndpoint[];
  readonly silent: SilentResolvers;
  /** Takes the answer, valid until it returns; `undefined` if no resolver gave one. */
  onEnd(answer: Uint8Array | undefined): void;
}

export class ResolverQuery implements Disposable {
  readonly #options: ResolverQueryOptions;
  /** Those to ask, the next one first. */
  #queue: readonly SocketEndpoint[];
  readonly #attemptMs: number;
  #resolver: SocketEndpoint | undefined;
  #exchange: Disposable | undefined;
  #deadline = Infinity;
  /** An error, or a truncated answer, in case nobody says more. */
  #lastAnswer: Uint8Array | undefined;

  constructor(options: ResolverQueryOptions) {
    this.#options = options;
    this.#queue = Array.from({ length: ROUNDS }, () => options.resolvers).flat();
    this.#attemptMs = Math.min(MAX_ATTEMPT_MS, MAX_TOTAL_MS / this.#queue.length);
  }

  /** By `performance.now()`; then, the resolver counts as silent. */
  get deadline(): number {
    return this.#deadline;
  }

  expire(): void {
    if (this.#resolver) this.#options.silent.add(this.#resolver);
    this.askNext();
  }

  /** Ends the query if all have been asked. */
  askNext(): void {
    this.#close();
    for (;;) {
      const [resolver, ...others] = this.#queue;
      this.#resolver = resolver;
      this.#queue = others;
      if (!resolver) return this.#options.onEnd(this.#lastAnswer);
      if (this.#ask("askOverUdp", resolver, (answer) => this.#takeUdpAnswer(resolver, answer))) return;
    }
  }

  [Symbol.dispose](): void {
    this.#close();
  }

  /** @returns whether the resolver could be asked */
  #ask(
    method: "askOverUdp" | "askOverTcp",
    resolver: SocketEndpoint,
    onAnswer: (answer: Uint8Array) => void,
  ): boolean {
    const { sockets, question } = this.#options;
    this.#deadline = performance.now() + this.#attemptMs;
    try {
      this.#exchange = sockets[method]({ resolver, question, onAnswer, onFailure: () => this.askNext() });
      return true;
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      return false;
    }
  }

  #takeUdpAnswer(resolver: SocketEndpoint, answer: Uint8Array): void {
    isTruncatedAnswer(answer) ? this.#askForWhole(resolver, answer.slice()) : this.#takeAnswer(resolver, answer);
  }

  /** @param truncated is better than nothing, and than another resolver's answer */
  #askForWhole(resolver: SocketEndpoint, truncated: Uint8Array): void {
    this.#close();
    this.#lastAnswer = truncated;
    this.#queue = [];
    if (!this.#ask("askOverTcp", resolver, (answer) => this.#takeAnswer(resolver, answer))) this.askNext();
  }

  #takeAnswer(resolver: SocketEndpoint, answer: Uint8Array): void {
    const { silent, onEnd } = this.#options;
    silent.remove(resolver);
    const rcode = rcodeOf(answer);
    if (rcode === RCODE.NOERROR || rcode === RCODE.NXDOMAIN) {
      this.#close();
      return onEnd(answer);
    }
    this.#lastAnswer = answer.slice();
    // It has said all that it will say.
    this.#queue = this.#queue.filter(({ address }) => address !== resolver.address);
    this.askNext();
  }

  #close(): void {
    this.#exchange?.[Symbol.dispose]();
    this.#exchange = undefined;
  }
}
