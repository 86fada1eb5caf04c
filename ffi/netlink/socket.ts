/**
 * A netlink socket: requests, answers and dumps.
 *
 * The kernel handles a request while it is being sent, so that all answers but those of a dump are waiting once the send returns.
 *
 * @see linux/netlink.h, net/netlink/af_netlink.c
 * @module
 */
import { forPurpose, SystemError, unless } from "../sys/error.ts";
import { closeLate } from "../sys/deferred_close.ts";
import { sys } from "../sys/libc.ts";
import { attrs } from "./attrs.ts";
import { cstr, Reader, u32, Writer } from "./codec.ts";
import { NetlinkError } from "./error.ts";
import {
  type AnySpec,
  attributePath,
  type MessageIn,
  type MessageOut,
  NLM_F_ACK,
  NLM_F_DUMP,
  NLM_F_REQUEST,
  NLMSG_HDRLEN,
  type Op,
  readMessage,
  writeMessage,
} from "./message.ts";

const AF_NETLINK = 16;
const SOCK_RAW = 3;
const SOCK_CLOEXEC = 0o2000000;
const SOL_SOCKET = 1;
const SO_RCVTIMEO = 20;
const SO_SNDBUFFORCE = 32;
const SO_NETNS_COOKIE = 71;
const SOL_NETLINK = 270;
const NETLINK_ADD_MEMBERSHIP = 1;
const NETLINK_CAP_ACK = 10;
const NETLINK_EXT_ACK = 11;
const NETLINK_GET_STRICT_CHK = 12;
const MSG_DONTWAIT = 0x40;
const MSG_TRUNC = 0x20;

const NLMSG_ERROR = 2;
const NLMSG_DONE = 3;
const NLM_F_MULTI = 0x2;
const NLM_F_DUMP_INTR = 0x10;
const NLM_F_CAPPED = 0x100;
const NLM_F_ACK_TLVS = 0x200;

const TIMEOUT_SECONDS = 5;
const DUMP_ATTEMPTS = 20;
const ENOENT = 2;
const ERESTART = 85;
const ENOBUFS = 105;
const ETIMEDOUT = 110;

/** The netlink families this program speaks. @see linux/netlink.h */
export const NETLINK_ROUTE = 0;
export const NETLINK_SOCK_DIAG = 4;
export const NETLINK_NETFILTER = 12;

/** What carries requests to the kernel and its answers back. */
export interface Transport extends Disposable {
  /** Sends one datagram: a request, or several that belong together. @throws {SystemError} */
  send(request: Uint8Array): void;
  /** The next datagram; `undefined` if none comes, at once when `wait` is false, else after some seconds. */
  receive(wait: boolean): Uint8Array | undefined;
  /** Has the kernel close it in its own time, when it is closed. Whoever closes it as ever waits for what changes to the ruleset leave behind, some 9 ms. */
  closeLate?(): void;
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
}

/**
 * Opens a socket of `family` in the thread's network namespace.
 *
 * @param groups multicast groups whose messages it receives besides answers
 * @throws {SystemError}
 */
export function openNetlink(family: number, groups: readonly number[] = []): NetlinkSocket {
  const fd = forPurpose("open netlink socket", () => sys.socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, family));
  const one = new Uint32Array([1]);
  // Answers with a reason and without a copy of the request; dumps that the kernel filters. Old kernels know none of these.
  for (const option of [NETLINK_EXT_ACK, NETLINK_CAP_ACK, NETLINK_GET_STRICT_CHK]) {
    unless(["ENOPROTOOPT"], () => sys.setsockopt(fd, SOL_NETLINK, option, one, 4));
  }
  // struct timeval: 64-bit seconds, 64-bit microseconds
  sys.setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, new Uint32Array([TIMEOUT_SECONDS, 0, 0, 0]), 16);
  if (groups.length > 0) {
    // A socket that has no address yet passes for the kernel itself, who is not told of its own news.
    sys.bind(fd, new Uint16Array([AF_NETLINK, 0, 0, 0, 0, 0]), 12);
  }
  for (const group of groups) sys.setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, new Uint32Array([group]), 4);
  return socketOf(fd);
}

/** Where every socket receives: what a datagram says is read before the next one comes. */
let buffer = new Uint8Array(0);
const BUFFER_SIZE = 64 * 1024;

function socketOf(fd: number): NetlinkSocket {
  if (buffer.length === 0) buffer = new Uint8Array(BUFFER_SIZE);
  let isLate = false;
  return {
    sequence: 1,
    closeLate() {
      isLate = true;
    },
    send(request) {
      const SEND_BUFFER = 128 * 1024;
      if (request.length > SEND_BUFFER) {
        sys.setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, new Uint32Array([request.length * 2]), 4);
      }
      forPurpose(`send ${request.length} bytes to the kernel`, () => sys.send(fd, request, request.length, 0));
    },
    receive(wait) {
      const flags = MSG_TRUNC | (wait ? 0 : MSG_DONTWAIT);
      const length = unless(["EAGAIN"], () => sys.recv(fd, buffer, buffer.length, flags));
      if (length === undefined) return undefined;
      if (length > buffer.length) {
        buffer = new Uint8Array(length);
        throw new SystemError("recv", 90, "receive an answer of the kernel");
      }
      return buffer.subarray(0, length);
    },
    netnsCookie() {
      const cookie = new BigUint64Array(1);
      const length = new Uint32Array([cookie.byteLength]);
      const answer = unless(["ENOPROTOOPT"], () => sys.getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, cookie, length));
      return answer === undefined ? undefined : `${cookie[0]}`;
    },
    [Symbol.dispose]: () => isLate ? closeLate(fd) : void sys.close(fd),
  };
}

/** One request of several that are sent together. */
export interface Request<S extends AnySpec = AnySpec> {
  readonly op: Op<S>;
  readonly value: MessageIn<S>;
  readonly flags?: number;
}

/** A request whose value is checked against its message. */
export function request<S extends AnySpec>(op: Op<S>, value: MessageIn<S>, flags = 0): Request {
  return { op, value, flags } as Request;
}

/** Sends one request and waits for the kernel's assent. @throws {NetlinkError} */
export function execute<S extends AnySpec>(nl: Netlink, op: Op<S>, value: MessageIn<S>, flags = 0): void {
  executeAll(nl, [request(op, value, flags)]);
}

/** So many answers wait for us without being lost. */
const MOST_AT_ONCE = 64;

/**
 * Sends requests, many at once, and waits for the kernel's assent to all. The kernel carries out those after a refused one as well.
 *
 * @throws {NetlinkError} of the first that was refused; `index` tells which
 */
export function executeAll(nl: Netlink, requests: readonly Request[]): void {
  // The kernel answers in order, and reports every refusal unasked.
  const isLast = (i: number) => i === requests.length - 1 || i % MOST_AT_ONCE === MOST_AT_ONCE - 1;
  const asked = requests.map((one, i) => isLast(i) ? { ...one, flags: (one.flags ?? 0) | NLM_F_ACK } : one);
  exchange(nl, asked, () => {}, { atOnce: MOST_AT_ONCE });
}

/** Sends a request that has one answer, and returns it. @throws {NetlinkError} */
export function query<S extends AnySpec>(
  nl: Netlink,
  op: Op<S>,
  value: MessageIn<S>,
  reply: AnySpec = op.spec,
): MessageOut<S> {
  return queryAll(nl, op, [value], reply)[0]!;
}

/** Sends requests that have one answer each, many at once, and returns the answers. @throws {NetlinkError} of the first that was refused */
export function queryAll<S extends AnySpec>(
  nl: Netlink,
  op: Op<S>,
  values: readonly MessageIn<S>[],
  reply: AnySpec = op.spec,
): MessageOut<S>[] {
  const answers: MessageOut<S>[] = [];
  // The answer itself is the kernel's assent; a second message that says so would only have to be read.
  exchange(
    nl,
    values.map((value) => request(op, value)),
    (payload) => answers.push(readMessage(reply, payload) as MessageOut<S>),
    { answered: true, atOnce: MOST_AT_ONCE },
  );
  return answers;
}

/**
 * Sends questions that have one answer each or none, whatever each is about, many at once.
 *
 * @returns the answers in order; `undefined` where the kernel says that there is no such thing
 * @throws {NetlinkError} of the first that was refused for another reason
 */
export function findAll(nl: Netlink, questions: readonly Request[]): (MessageOut<AnySpec> | undefined)[] {
  const answers: (MessageOut<AnySpec> | undefined)[] = questions.map(() => undefined);
  const take = (payload: Reader, index: number) => {
    answers[index] = readMessage(questions[index]!.op.spec, payload);
  };
  exchange(nl, questions, take, { answered: true, expected: ENOENT, atOnce: MOST_AT_ONCE });
  return answers;
}

/** Everything of a kind. Repeated when it changed while the kernel was listing it. @throws {NetlinkError} */
export function dump<S extends AnySpec>(
  nl: Netlink,
  op: Op<S>,
  value: MessageIn<S>,
  reply: AnySpec = op.spec,
): MessageOut<S>[] {
  for (let attempt = 1;; attempt++) {
    const items: MessageOut<S>[] = [];
    const { interrupted } = exchange(nl, [request(op, value, NLM_F_DUMP)], (payload) => {
      items.push(readMessage(reply, payload) as MessageOut<S>);
    });
    if (!interrupted) return items;
    if (attempt === DUMP_ATTEMPTS) {
      throw new NetlinkError({ request: op.name, errno: ERESTART, kernel: "The list kept changing" });
    }
  }
}

/**
 * Waits for the next messages of the groups the socket listens to, for some seconds at most.
 *
 * @returns those of type `op`; `undefined` if nothing came; `lost` if more happened than the socket could keep, so that only a look
 * at the state tells what
 */
export function awaitEvents<S extends AnySpec>(nl: Netlink, op: Op<S>): MessageOut<S>[] | "lost" | undefined {
  let datagram: Uint8Array | undefined;
  try {
    datagram = nl.receive(true);
  } catch (error) {
    if (error instanceof SystemError && error.code === "ENOBUFS") return "lost";
    throw error;
  }
  if (!datagram) return undefined;
  const events: MessageOut<S>[] = [];
  eachMessage(datagram, ({ type, payload }) => {
    if (type === op.type) events.push(readMessage(op.spec, payload));
  });
  return events;
}

type Take = (payload: Reader, index: number) => void;

/** How requests are sent and what counts as an answer. */
interface Manner {
  /** Each request has one answer, and no other follows. */
  readonly answered?: boolean;
  /** The error number that is an answer like others. */
  readonly expected?: number;
  /** So many requests go into a datagram, and their answers are read before the next one; all into one if absent. */
  readonly atOnce?: number;
}

/** Where the answers to one exchange stand. */
interface Exchange extends Manner {
  readonly requests: readonly Request[];
  /** Sequence number of the first request. */
  readonly first: number;
  /** Numbers of the requests whose last answer is still to come. */
  readonly open: Set<number>;
  /** Whether the kernel gives answers piece by piece. */
  readonly waits: boolean;
  refusal?: NetlinkError;
  interrupted: boolean;
  /** The socket could not keep all answers. */
  overrun: boolean;
}

/**
 * Sends requests and reads all their answers; gives each message that is neither acknowledgement nor error to `take`.
 *
 * A request without NLM_F_ACK and NLM_F_DUMP has no last answer and is not waited for, though its refusal is noticed; unless `answered`
 * says that each has one answer.
 *
 * @param take gets, with each message, the position of its request
 * @throws {NetlinkError} of the first request that was refused; `ENOBUFS` if answers were lost, so that there is no telling
 */
export function exchange(
  nl: Netlink,
  requests: readonly Request[],
  take: Take,
  manner: Manner = {},
): { readonly interrupted: boolean } {
  const waits = requests.some(({ flags = 0 }) => isDump(flags));
  const progress = { open: new Set<number>(), interrupted: false, overrun: false };
  const state: Exchange = { ...manner, ...progress, requests, first: nl.sequence, waits };
  const { atOnce = requests.length } = manner;
  for (let at = 0; at < requests.length; at += atOnce) {
    const unasked = sendPart(nl, state, requests.slice(at, at + atOnce));
    readAnswers(nl, state, take, unasked);
  }
  if (state.refusal) throw state.refusal;
  return state;
}

/** @returns the number of the first request that has no last answer, if one has none */
function sendPart(nl: Netlink, { open, answered }: Exchange, part: readonly Request[]): number | undefined {
  const w = new Writer();
  let unasked: number | undefined;
  for (const { op, value, flags = 0 } of part) {
    if (answered || flags & NLM_F_ACK || isDump(flags)) open.add(nl.sequence);
    else unasked ??= nl.sequence;
    writeMessage(w, op, value, flags | NLM_F_REQUEST, nl.sequence++);
  }
  nl.send(w.written());
  return unasked;
}

const LOST = "more came at once than the socket keeps, see net.core.rmem_default, or memory was short";

function readAnswers(nl: Netlink, state: Exchange, take: Take, unasked: number | undefined): void {
  const { open, requests, first } = state;
  while (open.size > 0) {
    const datagram = receiveAnswer(nl, state);
    if (!datagram) break;
    readDatagram(state, datagram, take);
  }
  // What was lost may be the refusal of a request of which nothing else would be heard.
  const [missing = state.overrun ? unasked : undefined] = open;
  open.clear();
  if (missing === undefined || state.refusal) return;
  const [errno, kernel] = state.overrun
    ? [ENOBUFS, `Answers were lost: ${LOST}`] as const
    : [ETIMEDOUT, "No answer from the kernel"] as const;
  throw new NetlinkError({ request: requests[missing - first]!.op.name, errno, kernel, index: missing - first });
}

/**
 * What came of a request must be known: short of memory for a moment, the kernel may have the answer a little later. But what the socket
 * could not keep does not come any more, and a batch that is refused as a whole has one answer, whatever is in it.
 */
function receiveAnswer(nl: Netlink, state: Exchange): Uint8Array | undefined {
  const { waits } = state;
  try {
    const datagram = nl.receive(waits);
    if (datagram || waits) return datagram;
  } catch (error) {
    if (!(error instanceof SystemError) || !["ENOBUFS", "ENOMEM"].includes(error.code)) throw error;
    state.overrun ||= error.code === "ENOBUFS";
  }
  return nl.receive(waits || !(state.overrun || state.refusal));
}

/** Each of its two bits alone means something else in a request that creates. */
const isDump = (flags: number): boolean => (flags & NLM_F_DUMP) === NLM_F_DUMP;

/** A message of a datagram: the fields of its struct nlmsghdr, and what is behind it. */
interface Received {
  readonly type: number;
  readonly flags: number;
  readonly sequence: number;
  readonly payload: Reader;
}

/** Gives each message of a datagram to `take`. */
function eachMessage(datagram: Uint8Array, take: (message: Received) => void): void {
  const reader = new Reader(datagram);
  while (reader.end - reader.at >= NLMSG_HDRLEN) {
    const start = reader.at;
    const length = Math.max(NLMSG_HDRLEN, u32At(reader, start));
    reader.take(length);
    take({
      type: reader.view.getUint16(start + 4, true),
      flags: reader.view.getUint16(start + 6, true),
      sequence: u32At(reader, start + 8),
      payload: reader.part(start + NLMSG_HDRLEN, start + length),
    });
    reader.at = Math.min(reader.end, start + ((length + 3) & ~3));
  }
}

const u32At = (reader: Reader, at: number): number => reader.view.getUint32(at, true);

function readDatagram(state: Exchange, datagram: Uint8Array, take: Take): void {
  eachMessage(datagram, (received) => {
    const index = received.sequence - state.first;
    // What is left over from an earlier exchange, or was sent to a group, is not for us.
    if (index >= 0 && index < state.requests.length) readAnswer(state, index, received, take);
  });
}

function readAnswer(state: Exchange, index: number, received: Received, take: Take): void {
  const { type, flags, payload } = received;
  if (flags & NLM_F_MULTI && flags & NLM_F_DUMP_INTR) state.interrupted = true;
  if (type !== NLMSG_ERROR && type !== NLMSG_DONE) {
    if (state.answered) state.open.delete(received.sequence);
    return take(payload, index);
  }
  state.open.delete(received.sequence);
  const errno = payload.end - payload.at >= 4 ? -payload.view.getInt32(payload.take(4), true) : 0;
  if (errno === 0 || errno === state.expected) return;
  if (!state.refusal || index < state.refusal.index) state.refusal = refusalOf(state, index, errno, received);
}

/** struct nlmsgerr { int error; struct nlmsghdr msg; } and, behind it, attributes with the kernel's explanation. */
const explanation = attrs(() => ({ message: [1, cstr], offset: [2, u32] }));

function refusalOf(state: Exchange, index: number, errno: number, { type, flags, payload }: Received): NetlinkError {
  const { op, value } = state.requests[index]!;
  if (!(flags & NLM_F_ACK_TLVS)) return new NetlinkError({ request: op.name, errno, index });
  if (type === NLMSG_ERROR) {
    const header = payload.take(NLMSG_HDRLEN);
    if (!(flags & NLM_F_CAPPED)) payload.at = Math.min(payload.end, header + ((u32At(payload, header) + 3) & ~3));
  }
  const { message, offset } = explanation.read(payload);
  const attribute = offset === undefined ? undefined : attributePath(op.spec, written(op, value), offset);
  return new NetlinkError({ request: op.name, errno, attribute, kernel: message, index });
}

/** A request as the kernel got it, but for flags and number. */
function written<S extends AnySpec>(op: Op<S>, value: MessageIn<S>): Uint8Array {
  const w = new Writer();
  writeMessage(w, op, value, 0, 0);
  return w.written();
}
