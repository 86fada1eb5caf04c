import { sys } from "./libc.ts";
import { POLLIN } from "./uapi.ts";

export function sleep(ms: number): void {
  sys.poll(null, 0, ms);
}

/** Returns false after `timeoutMs`; a negative one never ends. */
export function pollFor(fd: number, events: number, timeoutMs = -1): boolean {
  // struct pollfd { int fd; short events; short revents; }
  return sys.poll(new Int32Array([fd, events]), 1, timeoutMs) > 0;
}

export function awaitReadable(fd: number, timeoutMs: number): boolean {
  return pollFor(fd, POLLIN, timeoutMs);
}

/** The descriptors that have something to read, or whose other side is gone; waits for one, at most `timeoutMs`. */
export function pollAny(fds: readonly number[], timeoutMs = -1): number[] {
  return pollEach(fds.map((fd) => [fd, POLLIN]), timeoutMs);
}

/** The same for descriptors with the events that they are to have. */
export function pollEach(awaited: readonly (readonly [fd: number, events: number])[], timeoutMs: number): number[] {
  const pollfds = new Int32Array(awaited.flat());
  sys.poll(pollfds, awaited.length, timeoutMs);
  return awaited.flatMap(([fd], i) => pollfds[i * 2 + 1]! >> 16 !== 0 ? [fd] : []);
}
