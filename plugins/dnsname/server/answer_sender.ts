/**
 * Sends answers from one UDP socket, so that those who cannot be reached do not keep it from others.
 *
 * While the kernel looks for the link address of a neighbour, it holds its packets back. They count as unsent of their
 * socket. A single neighbour that is silent can have as many as a socket may: then nobody gets an answer.
 */
import type { Ip } from "../../../ffi/address.ts";
import { sendPacketTo, sockaddrIp, unsentBytes } from "../../../ffi/sys/inet_socket.ts";

export interface AnswerSender {
  send(answer: Uint8Array, sockaddr: Uint8Array): void;
}

export interface AnswerSenderOptions {
  readonly fd: number;
  isContainer(address: Ip): boolean;
  /** Whether the kernel still looks for its link address. */
  isSought(address: Ip): boolean;
}

/** The kernel gives up a neighbour after three seconds. */
const HELD_MS = 4000;
/** The first questions of a container that had been silent come at once. */
const MAX_HELD_OF_CONTAINER = 4;
/** For all other addresses together: with any of them, the kernel begins to look anew. */
const MAX_HELD_OF_STRANGERS = 30;
const STRANGERS = "";

interface Held {
  count: number;
  /** A time of `performance.now()`, in milliseconds. */
  readonly until: number;
}

export function newAnswerSender({ fd, isContainer, isSought }: AnswerSenderOptions): AnswerSender {
  const held = new Map<string, Held>();

  const findHeld = (key: string): Held | undefined => {
    const found = held.get(key);
    return found && found.until > performance.now() ? found : undefined;
  };
  const isSpent = (address: Ip): boolean => {
    const ofContainer = isContainer(address);
    const found = findHeld(ofContainer ? address : STRANGERS);
    return found !== undefined && found.count >= (ofContainer ? MAX_HELD_OF_CONTAINER : MAX_HELD_OF_STRANGERS);
  };
  const count = (address: Ip): void => {
    const key = isContainer(address) ? address : STRANGERS;
    const found = findHeld(key) ?? { count: 0, until: performance.now() + HELD_MS };
    found.count++;
    held.set(key, found);
  };
  return {
    send(answer, sockaddr) {
      const unsentBefore = held.size > 0 ? unsentBytes(fd) : 0;
      if (unsentBefore === 0) held.clear();
      const address = sockaddrIp(sockaddr);
      if (held.size > 0 && isSpent(address)) return;
      sendPacketTo(fd, answer, sockaddr);
      if (unsentBytes(fd) > unsentBefore && isSought(address)) count(address);
    },
  };
}
