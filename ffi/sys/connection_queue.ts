import { ignoreErrors } from "./error.ts";
import { type Descriptor, descriptor } from "./file.ts";
import { sys } from "./libc.ts";
import { openSignals } from "./signal_descriptor.ts";
import { interruptedBy } from "./signals.ts";
import { F_SETFL, O_CLOEXEC, O_NONBLOCK, POLLIN, SOCK_CLOEXEC } from "./uapi.ts";

// linux/eventpoll.h
const EPOLL_CTL_ADD = 1;
const EPOLLEXCLUSIVE = 1 << 28;

/** A listening socket that several processes accept from. */
export interface ConnectionQueue extends Disposable {
  accept(): Descriptor;
}

/**
 * @param signal ends the process while it waits, and nowhere else: from now on it is blocked
 * @see epoll_wait(2)
 */
export function openConnectionQueue(listener: number, signal: number): ConnectionQueue {
  // Another process may take the connection first.
  sys.fcntl(listener, F_SETFL, O_NONBLOCK);
  const epoll = descriptor(sys.epoll_create1(O_CLOEXEC));
  // struct epoll_event { u32 events; u64 data; }: a connection wakes one process.
  sys.epoll_ctl(epoll.fd, EPOLL_CTL_ADD, listener, new Uint32Array([POLLIN | EPOLLEXCLUSIVE, 0, 0, 0]));
  // If a signal ends a process in epoll_wait(2) that a connection has just woken, no other is woken for it.
  const signals = openSignals([signal]);
  sys.epoll_ctl(epoll.fd, EPOLL_CTL_ADD, signals.fd, new Uint32Array([POLLIN, 0, 0, 0]));
  const event = new Uint32Array(4);
  return {
    accept() {
      for (;;) {
        interruptedBy([signal], () => {});
        sys.epoll_wait(epoll.fd, event, 1, -1);
        const fd = ignoreErrors(["EAGAIN"], () => sys.accept4(listener, null, null, SOCK_CLOEXEC));
        if (fd !== undefined) return descriptor(fd);
      }
    },
    [Symbol.dispose]: () => [epoll, signals].forEach((file) => file[Symbol.dispose]()),
  };
}
