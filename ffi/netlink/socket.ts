/**
 * A netlink socket: requests, answers and dumps.
 *
 * The kernel handles a request while it is being sent, so that all answers are waiting once the send returns; of a dump, the first part, and
 * the next one as soon as the one before is received.
 *
 * @see linux/netlink.h, net/netlink/af_netlink.c
 * @module
 */
import { ENOBUFS, ENOENT, ERESTART, ETIMEDOUT } from "../sys/errno.ts";
import { ignoreErrors, SystemError, withPurpose } from "../sys/error.ts";
import { closeDeferred } from "../sys/deferred_close.ts";
import { awaitReadable } from "../sys/poll.ts";
import { sys } from "../sys/libc.ts";
import { AF_NETLINK, IFNAMSIZ, SOCK_CLOEXEC, SOCK_RAW, SOL_SOCKET } from "../sys/uapi.ts";
import { attrs } from "./attrs.ts";
import { cstr, Reader, u32, Writer } from "./codec.ts";
import { NetlinkError } from "./error.ts";
import {
  type AnyMessageSpec,
  attributePath,
  type MessageIn,
  type MessageOut,
  NLM_F_ACK,
  NLM_F_ACK_TLVS,
  NLM_F_CAPPED,
  NLM_F_DUMP,
  NLM_F_DUMP_INTR,
  NLM_F_MULTI,
  NLM_F_REQUEST,
  NLMSG_DONE,
  NLMSG_ERROR,
  NLMSG_HDRLEN,
  type Operation,
  readMessage,
  writeMessage,
} from "./message.ts";
import { bufferedSocketFd, receiveDatagrams } from "./receive_buffer.ts";

const SO_SNDBUFFORCE = 32;
const SO_NETNS_COOKIE = 71;
/** linux/sockios.h; the kernel looks a name up without the lock that it takes for each question of rtnetlink. */
const SIOCGIFINDEX = 0x8933;
/** linux/if.h struct ifreq, and the longest name in it with the NUL that ends it */
const IFREQ_BYTES = 40;
const SOL_NETLINK = 270;
const NETLINK_CAP_ACK = 10;
const NETLINK_EXT_ACK = 11;
const NETLINK_GET_STRICT_CHK = 12;

const TIMEOUT_MS = 5000;
const DUMP_ATTEMPTS = 20;

/** The netlink families this program speaks. @see linux/netlink.h */
export const NETLINK_ROUTE = 0;
export const NETLINK_SOCK_DIAG = 4;
export const NETLINK_NETFILTER = 12;

/** What carries requests to the kernel and its answers back. */
export interface Transport extends Disposable {
  /** Sends one datagram: a request, or several that belong together. @throws {SystemError} */
  send(request: Uint8Array): void;
  /**
   * The next datagram; `undefined` if none comes, at once when `wait` is false, else after some seconds.
   *
   * @param expected how many are on their way; what is not received before the next request is lost
   */
  receive(wait: boolean, expected?: number): Uint8Array | undefined;
  /** Has the kernel close it in its own time, when it is closed. Whoever closes it as ever waits for what changes to the ruleset leave behind, some 9 ms. */
  deferClose?(): void;
}

/** A socket of one netlink family, in the network namespace in which it was opened. */
export interface Netlink extends Transport {
  /** The number of the next request. */
  sequence: number;
}

/** A socket, which knows where it is. */
export interface NetlinkSocket extends Netlink {
  /** The number of its network namespace, which no other has in this boot, as text; `undefined` from kernels before 5.14. @throws {SystemError} */
  netnsCookie(): string | undefined;
  /** Whether the namespace has a link of this name; what is longer than 15 bytes is none. @throws {SystemError} */
  hasLink(name: string): boolean;
}

/**
 * What sockets are asked for; old kernels know none of these. All have refusals with a reason. Those of links have dumps that the kernel
 * filters. A refusal holds a copy of its request, which only those of rules do without: their requests can be larger than what they keep.
 */
const SOCKET_OPTIONS: Readonly<Record<number, readonly number[]>> = {
  [NETLINK_ROUTE]: [NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK],
  [NETLINK_SOCK_DIAG]: [NETLINK_EXT_ACK],
  [NETLINK_NETFILTER]: [NETLINK_EXT_ACK, NETLINK_CAP_ACK],
};

/** Opens a socket of `family` for requests, in the thread's network namespace. @throws {SystemError} */
export function openNetlink(family: number): NetlinkSocket {
  const fd = newSocket(family);
  const enabled = new Uint32Array([1]);
  for (const option of SOCKET_OPTIONS[family]!) {
    ignoreErrors(["ENOPROTOOPT"], () => sys.setsockopt(fd, SOL_NETLINK, option, enabled, 4));
  }
  return newNetlinkSocket(fd);
}

/**
 * Opens a socket of `family` for the messages of a multicast group, in the thread's network namespace.
 *
 * @param group from 1 to 32
 * @throws {SystemError}
 */
export function openEvents(family: number, group: number): NetlinkSocket {
  const fd = newSocket(family);
  // struct sockaddr_nl { u16 nl_family; u16 nl_pad; u32 nl_pid; u32 nl_groups; }
  sys.bind(fd, new Uint32Array([AF_NETLINK, 0, 1 << group - 1]), 12);
  return newNetlinkSocket(fd);
}

function newSocket(family: number): number {
  return withPurpose("open netlink socket", () => sys.socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, family));
}

function newNetlinkSocket(fd: number): NetlinkSocket {
  let isCloseDeferred = false;
  let received: Uint8Array[] = [];
  return {
    sequence: 1,
    deferClose() {
      isCloseDeferred = true;
    },
    send(request) {
      const SEND_BUFFER = 128 * 1024;
      if (request.length > SEND_BUFFER) {
        sys.setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, new Uint32Array([request.length * 2]), 4);
      }
      received = [];
      withPurpose(`send ${request.length} bytes to the kernel`, () => sys.send(fd, request, request.length, 0));
    },
    receive(wait, expected = 1) {
      const next = bufferedSocketFd() === fd ? received.shift() : undefined;
      if (next) return next;
      if (wait && !awaitReadable(fd, TIMEOUT_MS)) return undefined;
      received = receiveDatagrams(fd, expected);
      return received.shift();
    },
    netnsCookie() {
      const cookie = new BigUint64Array(1);
      const length = new Uint32Array([cookie.byteLength]);
      const answer = ignoreErrors(
        ["ENOPROTOOPT"],
        () => sys.getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, cookie, length),
      );
      return answer === undefined ? undefined : `${cookie[0]}`;
    },
    hasLink(name) {
      const encoded = new TextEncoder().encode(name);
      if (encoded.length >= IFNAMSIZ) return false;
      const ifreq = new Uint8Array(IFREQ_BYTES);
      ifreq.set(encoded);
      return ignoreErrors(["ENODEV"], () => sys.ioctl(fd, SIOCGIFINDEX, ifreq)) !== undefined;
    },
    [Symbol.dispose]: () => isCloseDeferred ? closeDeferred(fd) : void sys.close(fd),
  };
}

/** One request of several that are sent together. */
export interface NetlinkRequest<S extends AnyMessageSpec = AnyMessageSpec> {
  readonly op: Operation<S>;
  readonly value: MessageIn<S>;
  readonly flags?: number;
}

/** A request whose value is checked against its message. */
export function request<S extends AnyMessageSpec>(op: Operation<S>, value: MessageIn<S>, flags = 0): NetlinkRequest {
  return { op, value, flags } as NetlinkRequest;
}

/** Sends one request and waits for the kernel's assent. @throws {NetlinkError} */
export function execute<S extends AnyMessageSpec>(nl: Netlink, op: Operation<S>, value: MessageIn<S>, flags = 0): void {
  executeAll(nl, [request(op, value, flags)]);
}

/** So many answers wait for us without being lost. */
const MAX_PENDING = 64;

/**
 * Sends requests, many at once, and waits for the kernel's assent to all. The kernel carries out those after a refused one as well.
 *
 * @throws {NetlinkError} of the first that was refused; `index` tells which
 */
export function executeAll(nl: Netlink, requests: readonly NetlinkRequest[]): void {
  // The kernel answers in order, and reports every refusal unasked.
  const needsAck = (i: number) => i === requests.length - 1 || i % MAX_PENDING === MAX_PENDING - 1;
  const withAcks = requests.map((item, i) => needsAck(i) ? { ...item, flags: (item.flags ?? 0) | NLM_F_ACK } : item);
  exchange(nl, withAcks, () => {}, { batchSize: MAX_PENDING });
}

/** Sends a request that has one answer, and returns it. @throws {NetlinkError} */
export function query<S extends AnyMessageSpec>(
  nl: Netlink,
  op: Operation<S>,
  value: MessageIn<S>,
  reply: AnyMessageSpec = op.spec,
): MessageOut<S> {
  return queryAll(nl, op, [value], reply)[0]!;
}

/** Sends requests that have one answer each, many at once, and returns the answers. @throws {NetlinkError} of the first that was refused */
export function queryAll<S extends AnyMessageSpec>(
  nl: Netlink,
  op: Operation<S>,
  values: readonly MessageIn<S>[],
  reply: AnyMessageSpec = op.spec,
): MessageOut<S>[] {
  const replies: MessageOut<S>[] = [];
  // The answer itself is the kernel's assent; a second message that says so would only have to be read.
  exchange(
    nl,
    values.map((value) => request(op, value)),
    (payload) => replies.push(readMessage(reply, payload) as MessageOut<S>),
    { hasOneReply: true, batchSize: MAX_PENDING },
  );
  return replies;
}

/**
 * Sends questions that have one answer each or none, whatever each is about, many at once.
 *
 * @returns the answers in order; `undefined` where the kernel says that there is no such thing
 * @throws {NetlinkError} of the first that was refused for another reason
 */
export function queryAllIfPresent(
  nl: Netlink,
  requests: readonly NetlinkRequest[],
): (MessageOut<AnyMessageSpec> | undefined)[] {
  const replies: (MessageOut<AnyMessageSpec> | undefined)[] = requests.map(() => undefined);
  const onMessage = (payload: Reader, index: number) => {
    replies[index] = readMessage(requests[index]!.op.spec, payload);
  };
  exchange(nl, requests, onMessage, { hasOneReply: true, expectedErrno: ENOENT, batchSize: MAX_PENDING });
  return replies;
}

/** Everything of a kind. Repeated when it changed while the kernel was listing it. @throws {NetlinkError} */
export function dump<S extends AnyMessageSpec>(
  nl: Netlink,
  op: Operation<S>,
  value: MessageIn<S>,
  reply: AnyMessageSpec = op.spec,
): MessageOut<S>[] {
  for (let attempt = 1;; attempt++) {
    const items: MessageOut<S>[] = [];
    const { interrupted } = exchange(nl, [request(op, value, NLM_F_DUMP)], (payload) => {
      items.push(readMessage(reply, payload) as MessageOut<S>);
    });
    if (!interrupted) return items;
    if (attempt === DUMP_ATTEMPTS) {
      throw new NetlinkError({ request: op.name, errno: ERESTART, extack: "The list kept changing" });
    }
  }
}

/**
 * Waits for the next messages of the groups the socket listens to, for some seconds at most.
 *
 * @returns those of type `op`; `undefined` if nothing came; `lost` if more happened than the socket could keep, so that only a look
 * at the state tells what
 */
export function receiveEvents<S extends AnyMessageSpec>(
  nl: Netlink,
  op: Operation<S>,
): MessageOut<S>[] | "lost" | undefined {
  let datagram: Uint8Array | undefined;
  try {
    datagram = nl.receive(true);
  } catch (error) {
    if (error instanceof SystemError && error.code === "ENOBUFS") return "lost";
    throw error;
  }
  if (!datagram) return undefined;
  const events: MessageOut<S>[] = [];
  forEachMessage(datagram, ({ type, payload }) => {
    if (type === op.type) events.push(readMessage(op.spec, payload));
  });
  return events;
}

type MessageHandler = (payload: Reader, index: number) => void;

/** How requests are sent and what counts as an answer. */
interface ExchangeOptions {
  /** Each request has one answer, and no other follows. */
  readonly hasOneReply?: boolean;
  /** The error number that is an answer like others. */
  readonly expectedErrno?: number;
  /** So many requests go into a datagram, and their answers are read before the next one; all into one if absent. */
  readonly batchSize?: number;
}

/** Where the answers to one exchange stand. */
interface ExchangeState extends ExchangeOptions {
  readonly requests: readonly NetlinkRequest[];
  /** Sequence number of the first request. */
  readonly firstSequence: number;
  /** Numbers of the requests whose last answer is still to come. */
  readonly pending: Set<number>;
  /** Whether the kernel gives answers piece by piece. */
  readonly isDumping: boolean;
  error?: NetlinkError;
  interrupted: boolean;
  /** The socket could not keep all answers. */
  hasOverrun: boolean;
}

/**
 * Sends requests and reads all their answers; gives each message that is neither acknowledgement nor error to `take`.
 *
 * A request without NLM_F_ACK and NLM_F_DUMP has no last answer and is not waited for, though its refusal is noticed; unless `answered`
 * says that each has one answer.
 *
 * @param onMessage gets, with each message, the position of its request
 * @throws {NetlinkError} of the first request that was refused; `ENOBUFS` if answers were lost, so that there is no telling
 */
export function exchange(
  nl: Netlink,
  requests: readonly NetlinkRequest[],
  onMessage: MessageHandler,
  options: ExchangeOptions = {},
): { readonly interrupted: boolean } {
  const isDumping = requests.some(({ flags = 0 }) => isDump(flags));
  const initialState = { pending: new Set<number>(), interrupted: false, hasOverrun: false };
  const state: ExchangeState = { ...options, ...initialState, requests, firstSequence: nl.sequence, isDumping };
  const { batchSize = requests.length } = options;
  for (let at = 0; at < requests.length; at += batchSize) {
    const unacknowledged = sendBatch(nl, state, requests.slice(at, at + batchSize));
    readReplies(nl, state, onMessage, unacknowledged);
  }
  if (state.error) throw state.error;
  return state;
}

/** @returns the number of the first request that has no last answer, if one has none */
function sendBatch(
  nl: Netlink,
  { pending, hasOneReply }: ExchangeState,
  batch: readonly NetlinkRequest[],
): number | undefined {
  const w = new Writer();
  let unacknowledged: number | undefined;
  for (const { op, value, flags = 0 } of batch) {
    if (hasOneReply || flags & NLM_F_ACK || isDump(flags)) pending.add(nl.sequence);
    else unacknowledged ??= nl.sequence;
    writeMessage(w, op, value, flags | NLM_F_REQUEST, nl.sequence++);
  }
  nl.send(w.written());
  return unacknowledged;
}

const LOST_REPLIES_HINT = "more came at once than the socket keeps, see net.core.rmem_default, or memory was short";

function readReplies(
  nl: Netlink,
  state: ExchangeState,
  onMessage: MessageHandler,
  unacknowledged: number | undefined,
): void {
  const { pending, requests, firstSequence } = state;
  while (pending.size > 0) {
    const datagram = receiveDatagram(nl, state);
    if (!datagram) break;
    readDatagram(state, datagram, onMessage);
  }
  // What was lost may be the refusal of a request of which nothing else would be heard.
  const [missing = state.hasOverrun ? unacknowledged : undefined] = pending;
  pending.clear();
  if (missing === undefined || state.error) return;
  const [errno, extack] = state.hasOverrun
    ? [ENOBUFS, `Answers were lost: ${LOST_REPLIES_HINT}`] as const
    : [ETIMEDOUT, "No answer from the kernel"] as const;
  throw new NetlinkError({
    request: requests[missing - firstSequence]!.op.name,
    errno,
    extack,
    index: missing - firstSequence,
  });
}

/**
 * What came of a request must be known: short of memory for a moment, the kernel may have the answer a little later. But what the socket
 * could not keep does not come any more, and a batch that is refused as a whole has one answer, whatever is in it.
 */
function receiveDatagram(nl: Netlink, state: ExchangeState): Uint8Array | undefined {
  try {
    // A list ends in a datagram of its own.
    const datagram = nl.receive(false, state.isDumping ? 2 : state.pending.size);
    if (datagram) return datagram;
  } catch (error) {
    if (!(error instanceof SystemError) || !["ENOBUFS", "ENOMEM"].includes(error.code)) throw error;
    state.hasOverrun ||= error.code === "ENOBUFS";
  }
  return nl.receive(state.isDumping || !(state.hasOverrun || state.error));
}

/** Each of its two bits alone means something else in a request that creates. */
const isDump = (flags: number): boolean => (flags & NLM_F_DUMP) === NLM_F_DUMP;

/** A message of a datagram: the fields of its struct nlmsghdr, and what is behind it. */
interface ReceivedMessage {
  readonly type: number;
  readonly flags: number;
  readonly sequence: number;
  readonly payload: Reader;
}

/** Gives each message of a datagram to `take`. */
function forEachMessage(datagram: Uint8Array, onMessage: (message: ReceivedMessage) => void): void {
  const reader = new Reader(datagram);
  while (reader.end - reader.offset >= NLMSG_HDRLEN) {
    const start = reader.offset;
    const length = Math.max(NLMSG_HDRLEN, u32At(reader, start));
    reader.skip(length);
    onMessage({
      type: reader.view.getUint16(start + 4, true),
      flags: reader.view.getUint16(start + 6, true),
      sequence: u32At(reader, start + 8),
      payload: reader.slice(start + NLMSG_HDRLEN, start + length),
    });
    reader.offset = Math.min(reader.end, start + ((length + 3) & ~3));
  }
}

const u32At = (reader: Reader, at: number): number => reader.view.getUint32(at, true);

function readDatagram(state: ExchangeState, datagram: Uint8Array, onMessage: MessageHandler): void {
  forEachMessage(datagram, (received) => {
    const index = received.sequence - state.firstSequence;
    // What is left over from an earlier exchange, or was sent to a group, is not for us.
    if (index >= 0 && index < state.requests.length) readReply(state, index, received, onMessage);
  });
}

function readReply(state: ExchangeState, index: number, received: ReceivedMessage, onMessage: MessageHandler): void {
  const { type, flags, payload } = received;
  if (flags & NLM_F_MULTI && flags & NLM_F_DUMP_INTR) state.interrupted = true;
  if (type !== NLMSG_ERROR && type !== NLMSG_DONE) {
    if (state.hasOneReply) state.pending.delete(received.sequence);
    return onMessage(payload, index);
  }
  state.pending.delete(received.sequence);
  const errno = payload.end - payload.offset >= 4 ? -payload.view.getInt32(payload.skip(4), true) : 0;
  if (errno === 0 || errno === state.expectedErrno) return;
  if (!state.error || index < state.error.index) state.error = netlinkErrorOf(state, index, errno, received);
}

/** struct nlmsgerr { int error; struct nlmsghdr msg; } and, behind it, attributes with the kernel's explanation. */
const extackAttrs = attrs(() => ({ message: [1, cstr], offset: [2, u32] }));

function netlinkErrorOf(
  state: ExchangeState,
  index: number,
  errno: number,
  { type, flags, payload }: ReceivedMessage,
): NetlinkError {
  const { op, value } = state.requests[index]!;
  if (!(flags & NLM_F_ACK_TLVS)) return new NetlinkError({ request: op.name, errno, index });
  if (type === NLMSG_ERROR) {
    const header = payload.skip(NLMSG_HDRLEN);
    if (!(flags & NLM_F_CAPPED)) payload.offset = Math.min(payload.end, header + ((u32At(payload, header) + 3) & ~3));
  }
  const { message, offset } = extackAttrs.read(payload);
  const attribute = offset === undefined ? undefined : attributePath(op.spec, encodeRequest(op, value), offset);
  return new NetlinkError({ request: op.name, errno, attribute, extack: message, index });
}

/** A request as the kernel got it, but for flags and number. */
function encodeRequest<S extends AnyMessageSpec>(op: Operation<S>, value: MessageIn<S>): Uint8Array {
  const w = new Writer();
  writeMessage(w, op, value, 0, 0);
  return w.written();
}
