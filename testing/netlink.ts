/**
 * Netlink without or around the kernel: recorded messages, and sockets that record, lose, or tell of what passes.
 *
 * @module
 */
import { readFileSync } from "node:fs";
import { ENOBUFS } from "../ffi/sys/errno.ts";
import { SystemError } from "../ffi/sys/error.ts";
import { Reader } from "../ffi/netlink/codec.ts";
import {
  type AnyMessageSpec,
  type MessageOut,
  NLM_F_ACK_TLVS,
  NLM_F_CAPPED,
  NLMSG_HDRLEN,
  readMessage,
} from "../ffi/netlink/message.ts";
import type { Netlink } from "../ffi/netlink/socket.ts";
import type { Netns } from "../ffi/netns/netns.ts";

/** A message that another program sent: testdata/netlink/`name`.hex. */
export function recordedMessage(name: string): Uint8Array {
  const text = readFileSync(`${import.meta.dir}/../testdata/netlink/${name}.hex`, "utf8");
  return Uint8Array.fromHex(text.replace(/^#.*$/gm, "").replace(/\s+/g, ""));
}

/** A socket that keeps what is sent, its sequence numbers set to 0, and answers each send with `answers` in turn. */
export function recordingSocket(...answers: readonly Uint8Array[]): Netlink & { readonly sent: Uint8Array[] } {
  const sent: Uint8Array[] = [];
  const queue = [...answers];
  return {
    sent,
    sequence: 1,
    send(request) {
      const copy = request.slice();
      const view = new DataView(copy.buffer);
      for (let at = 0; at < copy.length; at += (view.getUint32(at, true) + 3) & ~3) view.setUint32(at + 8, 0, true);
      sent.push(copy);
    },
    receive: () => queue.shift(),
    [Symbol.dispose]: () => {},
  };
}

/** Functions called around each datagram of a socket. The socket throws their errors. */
export interface DatagramEvents {
  /** Before a datagram is sent. */
  readonly onSend?: (request: Uint8Array) => void;
  /** Called after an answer was received. */
  readonly onReceive?: (answer: Uint8Array) => void;
}

/** The socket, which tells of each datagram. */
function watchedSocket(nl: Netlink, { onSend, onReceive }: DatagramEvents): Netlink {
  return {
    get sequence() {
      return nl.sequence;
    },
    set sequence(number) {
      nl.sequence = number;
    },
    send(request) {
      onSend?.(request);
      nl.send(request);
    },
    receive(wait) {
      const answer = nl.receive(wait);
      if (answer) onReceive?.(answer);
      return answer;
    },
    [Symbol.dispose]: () => nl[Symbol.dispose](),
  };
}

/** The namespace with sockets that tell of each datagram. */
export function watchedNetns(netns: Netns, events: DatagramEvents): Netns {
  const sockets = new Map<Netlink, Netlink>();
  const watched = (nl: Netlink) => sockets.getOrInsertComputed(nl, () => watchedSocket(nl, events));
  return {
    path: netns.path,
    fd: netns.fd,
    get identity() {
      return netns.identity;
    },
    get cookie() {
      return netns.cookie;
    },
    get route() {
      return watched(netns.route);
    },
    get nft() {
      return watched(netns.nft);
    },
    get diag() {
      return watched(netns.diag);
    },
    hasLink: (name) => netns.hasLink(name),
    run: (call) => netns.run(call),
    [Symbol.dispose]: () => netns[Symbol.dispose](),
  };
}

/** A socket that counts the datagrams that are sent over another, which stays open. */
export function sendCountingSocket(nl: Netlink): Netlink & { sent: number } {
  const counting = { sent: 0 };
  const socket = watchedSocket(nl, { onSend: () => void counting.sent++ });
  return Object.defineProperties(counting, {
    ...Object.getOwnPropertyDescriptors(socket),
    [Symbol.dispose]: { value: () => {} },
  }) as Netlink & { sent: number };
}

/** The socket, which says once, before the message of this number, that it lost one, as where the kernel had no memory for an answer. */
export function lossySocket(nl: Netlink, number = 0): Netlink {
  let received = 0;
  const receive = (wait: boolean) => {
    if (received++ !== number) return nl.receive(wait);
    throw new SystemError("recv", ENOBUFS);
  };
  return { ...nl, receive };
}

/** The value of a whole message, its struct nlmsghdr passed over. */
export function valueOf<S extends AnyMessageSpec>(spec: S, message: Uint8Array): MessageOut<S> {
  return readMessage(spec, new Reader(message, NLMSG_HDRLEN));
}

/** struct nlmsghdr and an acknowledgement: error number (0 for none), the request's header, and `tail`. */
export function acknowledgement(sequence: number, errno: number, tail: Uint8Array = new Uint8Array()): Uint8Array {
  const bytes = new Uint8Array(36 + tail.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, bytes.length, true);
  view.setUint16(4, 2, true);
  view.setUint16(6, NLM_F_CAPPED | (tail.length > 0 ? NLM_F_ACK_TLVS : 0), true);
  view.setUint32(8, sequence, true);
  view.setInt32(16, -errno, true);
  bytes.set(tail, 36);
  return bytes;
}
