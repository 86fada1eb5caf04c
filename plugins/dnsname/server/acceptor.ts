/** Takes connections from listening sockets. */
import type { EventPoll } from "../../../ffi/sys/event_poll.ts";
import { SystemError } from "../../../ffi/sys/error.ts";

/** After a failure for want of descriptors or memory: until then, the kernel would report the listener without end. */
const PAUSE_MS = 1000;

interface Pause {
  readonly accept: () => void;
  readonly deadline: number;
}

export class Acceptor {
  readonly #poll: EventPoll;
  readonly #log: (message: string) => void;
  readonly #pauses = new Map<number, Pause>();
  /** Listeners whose failure the log has named. */
  readonly #failing = new Set<number>();

  constructor(poll: EventPoll, log: (message: string) => void) {
    this.#poll = poll;
    this.#log = log;
  }

  /** @param accept takes one connection if there is one; a failure lets the others wait for a second */
  listen(listener: number, accept: () => void): Disposable {
    this.#wait(listener, accept);
    return { [Symbol.dispose]: () => this.#forget(listener) };
  }

  deadline(): number {
    return Math.min(Infinity, ...[...this.#pauses.values()].map(({ deadline }) => deadline));
  }

  expire(): void {
    const now = performance.now();
    for (const [listener, { accept, deadline }] of [...this.#pauses]) {
      if (deadline > now) continue;
      this.#pauses.delete(listener);
      this.#wait(listener, accept);
    }
  }

  #wait(listener: number, accept: () => void): void {
    this.#poll.onReadable(listener, () => this.#acceptOrPause(listener, accept));
  }

  #acceptOrPause(listener: number, accept: () => void): void {
    try {
      accept();
      this.#failing.delete(listener);
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      this.#pause(listener, accept, error);
    }
  }

  #pause(listener: number, accept: () => void, error: SystemError): void {
    if (!this.#failing.has(listener)) this.#log(`Takes no connections until that is mended: ${error.message}`);
    this.#failing.add(listener);
    this.#poll.forget(listener);
    this.#pauses.set(listener, { accept, deadline: performance.now() + PAUSE_MS });
  }

  #forget(listener: number): void {
    this.#pauses.delete(listener);
    this.#failing.delete(listener);
    this.#poll.forget(listener);
  }
}
