/**
 * The kernel handles requests inside send(2): all answers wait when it returns. Receiving a part of a dump makes
 * the next part.
 *
 * @see linux/netlink.h, net/netlink/af_netlink.c
 * @module
 */
import { ENOBUFS, ENOENT, ERESTART, ETIMEDOUT } from "../sys/errno.ts";
import { ignoreErrors, SystemError, withPurpose } from "../sys/error.ts";
import { closeDeferred } from "../sys/deferred_close.ts";
import { awaitReadable } from "../sys/poll.ts";
import { observer, type RequestsActivity } from "../sys/observer.ts";
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
// linux/sockios.h. Finds a name without the rtnl lock.
const SIOCGIFINDEX = 0x8933;
// sizeof(struct ifreq), linux/if.h
const IFREQ_BYTES = 40;
const SOL_NETLINK = 270;
const NETLINK_CAP_ACK = 10;
const NETLINK_EXT_ACK = 11;
const NETLINK_GET_STRICT_CHK = 12;

const TIMEOUT_MS = 5000;
export const DUMP_ATTEMPTS = 20;

export const NETLINK_ROUTE = 0;
export const NETLINK_SOCK_DIAG = 4;
export const NETLINK_NETFILTER = 12;

/** A socket of one netlink family in one network namespace. */
export interface Netlink extends Disposable {
  /** The number that the next request gets. */
  sequence: number;
  /** The path that opened its namespace, for traces. */
  readonly netns?: string;
  /** What one command has read for many attachments. @internal */
  sharedReads?: Map<unknown, unknown> | undefined;
  /** What it has read of the ruleset; absent once that has changed. @internal */
  rulesetReads?: Map<unknown, unknown> | undefined;
  /** Keys of changes that the kernel took when it tried them. @internal */
  taken?: Set<unknown>;
  /** Sends one datagram of one or more requests. */
  send(request: Uint8Array): void;
  /**
   * Returns `undefined` if no datagram comes: at once, or after some seconds with `wait`.
   *
   * @param expected how many are on their way; the next `send` discards the rest
   */
  receive(wait: boolean, expected?: number): Uint8Array | undefined;
  /** Notifications name by it whose request caused them. The socket gets it with its first request. */
  portId?(): number;
  /** Leaves closing to the kernel: after anybody's changes to the ruleset, close(2) waits some 9 ms. */
  deferClose?(): void;
}

export interface NetlinkSocket extends Netlink {
  netnsCookie(): string | undefined;
  hasLink(name: string): boolean;
}

/**
 * Old kernels know none. Without NETLINK_CAP_ACK, a refusal contains its request, which can exceed the receive buffer.
 */
const SOCKET_OPTIONS: Readonly<Record<number, readonly number[]>> = {
  [NETLINK_ROUTE]: [NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK],
  [NETLINK_SOCK_DIAG]: [NETLINK_EXT_ACK],
  [NETLINK_NETFILTER]: [NETLINK_EXT_ACK, NETLINK_CAP_ACK],
};

/** @param netns the path of the thread's namespace, for traces */
export function openNetlink(family: number, netns = ""): NetlinkSocket {
  const fd = newNetlinkFd(family);
  const enabled = new Uint32Array([1]);
  for (const option of SOCKET_OPTIONS[family]!) {
    ignoreErrors(["ENOPROTOOPT"], () => sys.setsockopt(fd, SOL_NETLINK, option, enabled, 4));
  }
  return newNetlinkSocket(fd, netns);
}

/** @param group 1 to 32 */
export function openEvents(family: number, group: number): NetlinkSocket {
  const fd = newNetlinkFd(family);
  joinGroups(fd, [group]);
  return newNetlinkSocket(fd);
}

export function joinGroups(fd: number, groups: readonly number[]): void {
  const mask = groups.reduce((joined, group) => joined | 1 << group - 1, 0);
  // struct sockaddr_nl { u16 nl_family; u16 nl_pad; u32 nl_pid; u32 nl_groups; }
  sys.bind(fd, new Uint32Array([AF_NETLINK, 0, mask]), 12);
}

export function newNetlinkFd(family: number): number {
  return withPurpose("open netlink socket", () => sys.socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, family));
}

function newNetlinkSocket(fd: number, netns = ""): NetlinkSocket {
  let isCloseDeferred = false;
  let received: Uint8Array[] = [];
  return {
    sequence: 1,
    netns,
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
    portId() {
      // struct sockaddr_nl { u16 nl_family; u16 nl_pad; u32 nl_pid; u32 nl_groups; }
      const address = new Uint32Array(3);
      sys.getsockname(fd, address, new Uint32Array([address.byteLength]));
      return address[1]!;
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

export interface NetlinkRequest<S extends AnyMessageSpec = AnyMessageSpec> {
  readonly op: Operation<S>;
  readonly value: MessageIn<S>;
  readonly flags?: number;
}

export function request<S extends AnyMessageSpec>(op: Operation<S>, value: MessageIn<S>, flags = 0): NetlinkRequest {
  return { op, value, flags } as NetlinkRequest;
}

export function execute<S extends AnyMessageSpec>(nl: Netlink, op: Operation<S>, value: MessageIn<S>, flags = 0): void {
  executeAll(nl, [request(op, value, flags)]);
}

export const MAX_PENDING = 64;

/** A refusal does not stop later requests. @throws {NetlinkError} the first refusal */
export function executeAll(nl: Netlink, requests: readonly NetlinkRequest[]): void {
  exchange(nl, acknowledged(requests), () => {}, { batchSize: MAX_PENDING });
}

/** The kernel answers in order, and refuses without NLM_F_ACK too: one in each batch is enough. */
export function acknowledged(requests: readonly NetlinkRequest[]): NetlinkRequest[] {
  const needsAck = (i: number) => i === requests.length - 1 || i % MAX_PENDING === MAX_PENDING - 1;
  return requests.map((item, i) => needsAck(i) ? { ...item, flags: (item.flags ?? 0) | NLM_F_ACK } : item);
}

export function query<S extends AnyMessageSpec>(nl: Netlink, op: Operation<S>, value: MessageIn<S>): MessageOut<S> {
  return queryAll(nl, op, [value])[0]!;
}

/** Each request has one answer. @throws {NetlinkError} the first refusal */
export function queryAll<S extends AnyMessageSpec>(
  nl: Netlink,
  op: Operation<S>,
  values: readonly MessageIn<S>[],
): MessageOut<S>[] {
  return collectReplies(nl, values.map((value) => request(op, value))) as MessageOut<S>[];
}

export function queryAllIfPresent(
  nl: Netlink,
  requests: readonly NetlinkRequest[],
  absent: readonly number[] = [ENOENT],
): (MessageOut<AnyMessageSpec> | undefined)[] {
  return collectReplies(nl, requests, absent);
}

function collectReplies(
  nl: Netlink,
  requests: readonly NetlinkRequest[],
  expectedErrnos?: readonly number[],
): (MessageOut<AnyMessageSpec> | undefined)[] {
  const replies: (MessageOut<AnyMessageSpec> | undefined)[] = requests.map(() => undefined);
  const onMessage = (payload: Reader, index: number) => {
    replies[index] = readMessage(requests[index]!.op.spec, payload);
  };
  exchange(nl, requests, onMessage, { hasOneReply: true, expectedErrnos, batchSize: MAX_PENDING });
  return replies;
}

/** Lists again if objects changed meanwhile. */
export function dump<S extends AnyMessageSpec>(
  nl: Netlink,
  op: Operation<S>,
  value: MessageIn<S>,
  reply: AnyMessageSpec = op.spec,
): MessageOut<S>[] {
  let items: MessageOut<S>[] = [];
  const onStart = () => void (items = []);
  dumpEach(nl, op, value, onStart, (item) => void items.push(item), reply);
  return items;
}

/**
 * Lists without keeping all.
 *
 * @param onStart called again if objects changed meanwhile, before all come again
 */
export function dumpEach<S extends AnyMessageSpec>(
  nl: Netlink,
  op: Operation<S>,
  value: MessageIn<S>,
  onStart: () => void,
  onItem: (item: MessageOut<S>) => void,
  reply: AnyMessageSpec = op.spec,
): void {
  for (let attempt = 1;; attempt++) {
    onStart();
    const { interrupted } = exchange(nl, [request(op, value, NLM_F_DUMP)], (payload) => {
      onItem(readMessage(reply, payload) as MessageOut<S>);
    });
    if (!interrupted) return;
    if (attempt === DUMP_ATTEMPTS) throw keptChanging(op);
  }
}

export const keptChanging = ({ name }: { readonly name: string }): NetlinkError =>
  new NetlinkError({ request: name, errno: ERESTART, extack: "The list kept changing" });

/**
 * Waits some seconds for the next messages of the socket's groups.
 *
 * @returns those of type `op`; `undefined` if none came; `lost` if the socket overran, so that the state must be read
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

export type MessageHandler = (payload: Reader, index: number) => void;

export interface ExchangeOptions {
  /** Each request has one answer, and no other follows. */
  readonly hasOneReply?: boolean;
  /** An answer with this error is no refusal. */
  readonly expectedErrnos?: readonly number[] | undefined;
  /** Gets each refusal, none of which is thrown then. */
  readonly onRefusal?: ((error: NetlinkError) => void) | undefined;
  /** Answers are read before the next datagram of so many requests. Default: all in one. */
  readonly batchSize?: number;
}

export interface ExchangeState extends ExchangeOptions {
  readonly requests: readonly NetlinkRequest[];
  readonly firstSequence: number;
  /** Sequence numbers of requests that wait for an answer. */
  readonly pending: Set<number>;
  readonly isDumping: boolean;
  error?: NetlinkError;
  interrupted: boolean;
  hasOverrun: boolean;
}

/**
 * Sends requests and reads all answers.
 *
 * Without `hasOneReply`, only requests with NLM_F_ACK or NLM_F_DUMP are waited for. Refusals are noticed always.
 *
 * @param onMessage takes all but acknowledgements and errors, with the request's position
 * @throws {NetlinkError} the first refusal; `ENOBUFS` if answers were lost
 */
export function exchange(
  nl: Netlink,
  requests: readonly NetlinkRequest[],
  onMessage: MessageHandler,
  options: ExchangeOptions = {},
): ExchangeOutcome {
  if (!observer) return exchangeUnobserved(nl, requests, onMessage, options);
  const [netns, hasOneReply] = [nl.netns ?? "", options.hasOneReply === true];
  const activity: RequestsActivity = { kind: "requests", socket: nl, netns, requests, hasOneReply, onMessage };
  return observer(
    activity,
    () => exchangeUnobserved(activity.socket as Netlink, requests, activity.onMessage, options),
  );
}

interface ExchangeOutcome {
  readonly interrupted: boolean;
}

function exchangeUnobserved(
  nl: Netlink,
  requests: readonly NetlinkRequest[],
  onMessage: MessageHandler,
  options: ExchangeOptions,
): ExchangeOutcome {
  const state = newExchange(nl, requests, options);
  const { batchSize = requests.length } = options;
  for (let at = 0; at < requests.length; at += batchSize) {
    const unacknowledged = sendBatch(nl, state, requests.slice(at, at + batchSize));
    readReplies(nl, state, onMessage, unacknowledged);
  }
  if (state.error) throw state.error;
  return state;
}

export function newExchange(nl: Netlink, requests: readonly NetlinkRequest[], options: ExchangeOptions): ExchangeState {
  const isDumping = requests.some(({ flags = 0 }) => isDump(flags));
  const initialState = { pending: new Set<number>(), interrupted: false, hasOverrun: false };
  return { ...options, ...initialState, requests, firstSequence: nl.sequence, isDumping };
}

/** @returns the sequence number of the first request that is not waited for */
export function sendBatch(
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
    forEachMessage(datagram, (received) => {
      const index = received.sequence - firstSequence;
      // Others are left from an earlier exchange, or came to a group.
      if (index >= 0 && index < requests.length) readReply(state, index, received, onMessage);
    });
  }
  // The lost message may refuse a request that is not waited for.
  const [missing = state.hasOverrun ? unacknowledged : undefined] = pending;
  pending.clear();
  if (missing === undefined || state.error) return;
  const [errno, extack] = state.hasOverrun
    ? [ENOBUFS, `Answers were lost: ${LOST_REPLIES_HINT}`] as const
    : [ETIMEDOUT, "No answer from the kernel"] as const;
  const index = missing - firstSequence;
  throw new NetlinkError({ request: requests[index]!.op.name, errno, extack, index });
}

/** Waits for answers that are late because memory was short, not for lost ones. A refused batch has no other answer. */
function receiveDatagram(nl: Netlink, state: ExchangeState): Uint8Array | undefined {
  try {
    // A dump ends in a datagram of its own.
    const datagram = nl.receive(false, state.isDumping ? 2 : state.pending.size);
    if (datagram) return datagram;
  } catch (error) {
    if (!(error instanceof SystemError) || !["ENOBUFS", "ENOMEM"].includes(error.code)) throw error;
    state.hasOverrun ||= error.code === "ENOBUFS";
  }
  return nl.receive(state.isDumping || !(state.hasOverrun || state.error));
}

/** NLM_F_DUMP's bits are NLM_F_REPLACE and NLM_F_EXCL in NEW requests. */
export const isDump = (flags: number): boolean => (flags & NLM_F_DUMP) === NLM_F_DUMP;

export interface KernelMessage {
  readonly type: number;
  readonly flags: number;
  readonly sequence: number;
  /** Whose request caused the message, see {@linkcode Netlink.portId}; 0 for the kernel's own. */
  readonly portId: number;
  readonly payload: Reader;
}

export function forEachMessage(datagram: Uint8Array, onMessage: (message: KernelMessage) => void): void {
  const reader = new Reader(datagram);
  while (reader.end - reader.offset >= NLMSG_HDRLEN) {
    const start = reader.offset;
    const length = Math.max(NLMSG_HDRLEN, u32At(reader, start));
    reader.skip(length);
    onMessage({
      type: reader.view.getUint16(start + 4, true),
      flags: reader.view.getUint16(start + 6, true),
      sequence: u32At(reader, start + 8),
      portId: u32At(reader, start + 12),
      payload: reader.slice(start + NLMSG_HDRLEN, start + length),
    });
    reader.offset = Math.min(reader.end, start + ((length + 3) & ~3));
  }
}

const u32At = (reader: Reader, at: number): number => reader.view.getUint32(at, true);

export function readReply(
  state: ExchangeState,
  index: number,
  received: KernelMessage,
  onMessage: MessageHandler,
): void {
  const { type, flags, payload } = received;
  if (flags & NLM_F_MULTI && flags & NLM_F_DUMP_INTR) state.interrupted = true;
  if (type !== NLMSG_ERROR && type !== NLMSG_DONE) {
    if (state.hasOneReply) state.pending.delete(received.sequence);
    return onMessage(payload, index);
  }
  state.pending.delete(received.sequence);
  const errno = payload.end - payload.offset >= 4 ? -payload.view.getInt32(payload.skip(4), true) : 0;
  if (errno === 0 || state.expectedErrnos?.includes(errno)) return;
  if (state.onRefusal) state.onRefusal(netlinkErrorOf(state, index, errno, received));
  else if (!state.error || index < state.error.index) state.error = netlinkErrorOf(state, index, errno, received);
}

// struct nlmsgerr { int error; struct nlmsghdr msg; } comes first.
const extackAttrs = attrs(() => ({ message: [1, cstr], offset: [2, u32] }));

function netlinkErrorOf(
  state: ExchangeState,
  index: number,
  errno: number,
  { type, flags, payload }: KernelMessage,
): NetlinkError {
  const { op, value } = state.requests[index]!;
  if (!(flags & NLM_F_ACK_TLVS)) return new NetlinkError({ request: op.name, errno, index });
  if (type === NLMSG_ERROR) {
    const header = payload.skip(NLMSG_HDRLEN);
    if (!(flags & NLM_F_CAPPED)) payload.offset = Math.min(payload.end, header + ((u32At(payload, header) + 3) & ~3));
  }
  const { message, offset } = extackAttrs.read(payload);
  const w = new Writer();
  writeMessage(w, op, value, 0, 0);
  const attribute = offset === undefined ? undefined : attributePath(op.spec, w.written(), offset);
  return new NetlinkError({ request: op.name, errno, attribute, extack: message, index });
}
