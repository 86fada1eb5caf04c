/** Takes connections from listening sockets. */
import type { EventPoll } from "../../../ffi/sys/event_poll.ts";
import { SystemError } from "../../../ffi/sys/error.ts";

export interface Acceptor {
  /** @param accept takes one connection if there is one; a failure lets the others wait for a second */
  listen(listener: number, accept: () => void): Disposable;
  /** By `performance.now()`; `Infinity` if nothing is due. */
  deadline(): number;
  expire(): void;
}

/** After a failure for want of descriptors or memory: until then, the kernel would report the listener without end. */
const PAUSE_MS = 1000;

interface Pause {
  readonly resume: () => void;
  readonly deadline: number;
}

export function newAcceptor(poll: EventPoll, log: (message: string) => void): Acceptor {
  const pauses = new Map<number, Pause>();
  /** They are named once. */
  const failing = new Set<number>();
  const acceptOrPause = (listener: number, accept: () => void) => {
    try {
      accept();
      failing.delete(listener);
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      if (!failing.has(listener)) log(`Takes no connections until that is mended: ${error.message}`);
      failing.add(listener);
      poll.forget(listener);
      pauses.set(listener, { resume: () => wait(listener, accept), deadline: performance.now() + PAUSE_MS });
    }
  };
  const wait = (listener: number, accept: () => void) =>
    poll.onReadable(listener, () => acceptOrPause(listener, accept));
  return {
    listen(listener, accept) {
      wait(listener, accept);
      return {
        [Symbol.dispose]() {
          pauses.delete(listener);
          failing.delete(listener);
          poll.forget(listener);
        },
      };
    },
    deadline: () => Math.min(Infinity, ...[...pauses.values()].map(({ deadline }) => deadline)),
    expire() {
      const now = performance.now();
      for (const [listener, { resume, deadline }] of [...pauses]) {
        if (deadline > now) continue;
        pauses.delete(listener);
        resume();
      }
    },
  };
}
