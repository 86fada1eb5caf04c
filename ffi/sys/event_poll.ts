import { type Descriptor, descriptor } from "./file.ts";
import { sys } from "./libc.ts";
import { O_CLOEXEC, POLLIN, POLLOUT } from "./uapi.ts";

// linux/eventpoll.h
const EPOLL_CTL_ADD = 1;
const EPOLL_CTL_DEL = 2;

const MAX_EVENTS = 64;

/** The cost of a wait does not depend on the number of descriptors. */
export interface EventPoll extends Disposable {
  /** `onReady` runs whenever there is something to read, or the other side is gone. */
  onReadable(fd: number, onReady: () => void): void;
  onWritable(fd: number, onReady: () => void): void;
  /** Must come before the descriptor is closed. */
  forget(fd: number): void;
  /** Waits at most this long; a negative time never ends. */
  wait(timeoutMs: number): void;
}

/** @see epoll(7) */
export function openEventPoll(): EventPoll {
  const epoll: Descriptor = descriptor(sys.epoll_create1(O_CLOEXEC));
  const handlers = new Map<number, () => void>();
  // struct epoll_event { u32 events; u64 data; }: packed on x86-64 only.
  const [stride, dataAt] = process.arch === "x64" ? [3, 1] : [4, 2];
  const ready = new Uint32Array(MAX_EVENTS * stride);
  const add = (fd: number, events: number, onReady: () => void) => {
    const event = new Uint32Array(stride);
    event[0] = events;
    event[dataAt] = fd;
    sys.epoll_ctl(epoll.fd, EPOLL_CTL_ADD, fd, event);
    handlers.set(fd, onReady);
  };
  return {
    onReadable: (fd, onReady) => add(fd, POLLIN, onReady),
    onWritable: (fd, onReady) => add(fd, POLLOUT, onReady),
    forget(fd) {
      if (handlers.delete(fd)) sys.epoll_ctl(epoll.fd, EPOLL_CTL_DEL, fd, null);
    },
    wait(timeoutMs) {
      const count = sys.epoll_wait(epoll.fd, ready, MAX_EVENTS, timeoutMs);
      const fds = Array.from({ length: count }, (_, i) => ready[i * stride + dataAt]!);
      // An earlier one may have closed a later one.
      const due = fds.map((fd) => [fd, handlers.get(fd)] as const);
      for (const [fd, onReady] of due) if (onReady && handlers.get(fd) === onReady) onReady();
    },
    [Symbol.dispose]: () => epoll[Symbol.dispose](),
  };
}
