import { ignoreErrors } from "./error.ts";
import { type Descriptor, descriptor } from "./file.ts";
import { sys } from "./libc.ts";
import { interruptedBy, newSigset } from "./signals.ts";
import { F_SETFL, O_CLOEXEC, O_NONBLOCK, POLLIN, SOCK_CLOEXEC } from "./uapi.ts";

// linux/eventpoll.h
const EPOLL_CTL_ADD = 1;
const EPOLLEXCLUSIVE = 1 << 28;

/** A listening socket that several processes accept from. */
export interface ConnectionQueue extends Disposable {
  /** Waits for a connection. */
  accept(): Descriptor;
}

/**
 * @param signal a blocked signal, which ends the process while it waits, and nowhere else
 * @param blocked the other signals that this thread blocks
 * @see epoll_pwait(2)
 */
export function openConnectionQueue(listener: number, signal: number, blocked: readonly number[]): ConnectionQueue {
  // Another process may take the connection first.
  sys.fcntl(listener, F_SETFL, O_NONBLOCK);
  const epoll = descriptor(sys.epoll_create1(O_CLOEXEC));
  // struct epoll_event { u32 events; u64 data; }: a connection wakes one process.
  sys.epoll_ctl(epoll.fd, EPOLL_CTL_ADD, listener, new Uint32Array([POLLIN | EPOLLEXCLUSIVE, 0, 0, 0]));
  const mask = newSigset(blocked);
  const event = new Uint32Array(4);
  return {
    accept() {
      for (;;) {
        // epoll_pwait(2) lets no signal through if a connection waits already.
        interruptedBy([signal], () => {});
        sys.epoll_pwait(epoll.fd, event, 1, -1, mask);
        const fd = ignoreErrors(["EAGAIN"], () => sys.accept4(listener, null, null, SOCK_CLOEXEC));
        if (fd !== undefined) return descriptor(fd);
      }
    },
    [Symbol.dispose]: () => epoll[Symbol.dispose](),
  };
}
