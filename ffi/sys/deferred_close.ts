/**
 * Leaves slow closes to a kernel thread; a process waits for its own.
 *
 * The garbage collector of sockets closes a descriptor in flight over an unreachable socket. Before Linux 6.10, that
 * runs in the exiting process, so nothing is gained or lost.
 *
 * @see unix(7) SCM_RIGHTS, net/unix/garbage.c
 * @module
 */
import { ignoreSystemErrors } from "./error.ts";
import { sys } from "./libc.ts";
import { scmRightsMessage } from "./msghdr.ts";
import { AF_UNIX, SOCK_CLOEXEC, SOCK_DGRAM } from "./uapi.ts";

export function closeDeferred(fd: number): void {
  // Released last: then only the reference in flight is left.
  using _inFlight = ignoreSystemErrors(() => holdInFlight(fd));
  sys.close(fd);
}

function holdInFlight(fd: number): Disposable {
  const ends = new Int32Array(2);
  sys.socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends);
  const [sender, receiver] = ends as unknown as readonly [number, number];
  // Closing the sender starts the garbage collector, which must find the receiver closed by then.
  const close = () => {
    for (const end of [receiver, sender]) sys.close(end);
  };
  try {
    // The receiver is sent to itself, which keeps it referenced.
    const payload = new Uint8Array(1);
    sys.sendmsg(sender, scmRightsMessage([receiver, fd], payload), 0);
  } catch (error) {
    close();
    throw error;
  }
  return { [Symbol.dispose]: close };
}
