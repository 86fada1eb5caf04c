/** What the kernel tells of changes, for processes that poll. @module */
import { ignoreErrors, SystemError } from "../sys/error.ts";
import { sys } from "../sys/libc.ts";
import { SOL_SOCKET } from "../sys/uapi.ts";
import { receiveDatagrams } from "./receive_buffer.ts";
import { forEachMessage, joinGroups, type KernelMessage, newNetlinkFd } from "./socket.ts";

const SO_RCVBUFFORCE = 33;

export interface NetlinkMonitor extends Disposable {
  readonly fd: number;
  /**
   * Reads all messages that wait.
   *
   * @returns false if the kernel dropped messages: the state must be read
   */
  read(onMessage: (message: KernelMessage) => void): boolean;
}

/**
 * Joins groups of a netlink family, in the thread's network namespace.
 *
 * @param bufferBytes how much may wait; the kernel takes memory only for what waits
 */
export function openMonitor(family: number, groups: readonly number[], bufferBytes: number): NetlinkMonitor {
  const fd = newNetlinkFd(family);
  ignoreErrors(["EPERM"], () => sys.setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, new Uint32Array([bufferBytes]), 4));
  joinGroups(fd, groups);
  return {
    fd,
    read(onMessage) {
      let isComplete = true;
      for (;;) {
        const datagram = receiveOrLose(fd);
        if (datagram === undefined) return isComplete;
        // A copy: all sockets receive into one buffer.
        if (datagram === "lost") isComplete = false;
        else forEachMessage(datagram.slice(), onMessage);
      }
    },
    [Symbol.dispose]: () => void sys.close(fd),
  };
}

function receiveOrLose(fd: number): Uint8Array | "lost" | undefined {
  try {
    return receiveDatagrams(fd, 1)[0];
  } catch (error) {
    const isLost = error instanceof SystemError && ["ENOBUFS", "EMSGSIZE"].includes(error.code);
    if (isLost) return "lost";
    throw error;
  }
}
