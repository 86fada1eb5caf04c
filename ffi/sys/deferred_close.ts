/**
 * Descriptors whose last reference the kernel drops in a thread of its own.
 *
 * Some take long to close, and a process does not end before all of its are. One that is on its way through a socket that nobody can
 * receive from any more is closed by the kernel's collector of such sockets. Kernels before 6.10 collect them within the process that
 * ends: there nothing is won or lost.
 *
 * @see unix(7) SCM_RIGHTS, net/unix/garbage.c
 * @module
 */
import { ignoreSystemErrors } from "./error.ts";
import { scmRightsMessage, sys } from "./libc.ts";
import { AF_UNIX, SOCK_CLOEXEC, SOCK_DGRAM } from "./uapi.ts";

/** Closes `fd`; what the kernel has to wait for then, it waits for in a thread of its own where that is possible. */
export function closeDeferred(fd: number): void {
  // Let go behind the descriptor: from then on the last reference is the one on its way.
  using _inFlight = ignoreSystemErrors(() => holdInFlight(fd));
  sys.close(fd);
}

function holdInFlight(fd: number): Disposable {
  const ends = new Int32Array(2);
  sys.socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends);
  const [sender, receiver] = ends as unknown as readonly [number, number];
  const close = () => {
    for (const end of [sender, receiver]) sys.close(end);
  };
  try {
    // The receiver is sent to itself, so that it stays when nobody else has it any more.
    sys.sendmsg(sender, scmRightsMessage([receiver, fd]), 0);
  } catch (error) {
    close();
    throw error;
  }
  return { [Symbol.dispose]: close };
}
