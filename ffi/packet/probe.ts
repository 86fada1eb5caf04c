/** Tries whether a machine answers, in the thread's namespace. @see raw(7), icmp(7), tcp(7) @module */
import { familyOf, type Ip, ipBytes } from "../address.ts";
import { ignoreErrors, SystemError, withPurpose } from "../sys/error.ts";
import { type Descriptor, descriptor } from "../sys/file.ts";
import { takeSocketError, toSockaddr } from "../sys/inet_socket.ts";
import { sys } from "../sys/libc.ts";
import { awaitReadable, pollEach, pollFor } from "../sys/poll.ts";
import {
  AF_INET,
  AF_INET6,
  IPPROTO_ICMP,
  IPPROTO_ICMPV6,
  IPPROTO_TCP,
  MSG_DONTWAIT,
  O_NONBLOCK,
  POLLIN,
  POLLOUT,
  SOCK_CLOEXEC,
  SOCK_DGRAM,
  SOCK_RAW,
  SOCK_STREAM,
} from "../sys/uapi.ts";

export const ICMP_ECHO = { 4: { request: 8, reply: 0 }, 6: { request: 128, reply: 129 } } as const;

export interface PingOptions {
  /** Of the whole packet, which no machine may cut then: that tries an MTU. */
  readonly bytes?: number;
  /** An address of this host. */
  readonly source?: Ip;
}

// linux/in.h, linux/in6.h: level and option
const MTU_DISCOVER = { 4: { level: 0, option: 10 }, 6: { level: 41, option: 23 } } as const;
// IPV6_PMTUDISC_PROBE of linux/in6.h has the same value.
const IP_PMTUDISC_PROBE = 3;
const HEADER_BYTES = { 4: 20, 6: 40 } as const;

/** A packet that is sent, and what answers it. */
export interface Probe {
  /** A socket of its own. */
  open(): Descriptor;
  send(socket: Descriptor): void;
  /** The event of poll(2) after which to look. */
  readonly awaited: number;
  /** Reads what has come, which may be for somebody else. @throws {SystemError} what a machine on the way says */
  isAnswer(socket: Descriptor): boolean;
}

/**
 * Sends all of them at once.
 *
 * @returns those that are answered in time
 * @throws {SystemError} `EPERM` without CAP_NET_RAW, if a ping or a SYN is among them
 */
export function findAnswered(probes: readonly Probe[], timeoutMs: number): Set<Probe> {
  using sockets = new DisposableStack();
  const waiting = new Map<number, readonly [Probe, Descriptor]>();
  for (const probe of probes) {
    // Without the kernel's IPv6, nobody is reached by it.
    const socket = ignoreErrors(["EAFNOSUPPORT"], () => sockets.use(probe.open()));
    if (!socket) continue;
    unlessRefused(() => {
      probe.send(socket);
      waiting.set(socket.fd, [probe, socket]);
    });
  }
  const answered = new Set<Probe>();
  const deadline = performance.now() + timeoutMs;
  for (let left = timeoutMs; left > 0 && waiting.size > 0; left = Math.ceil(deadline - performance.now())) {
    const awaited = Array.from(waiting, ([fd, [{ awaited }]]) => [fd, awaited] as const);
    for (const fd of pollEach(awaited, left)) {
      const [probe, socket] = waiting.get(fd)!;
      const isAnswer = unlessRefused(() => probe.isAnswer(socket));
      if (isAnswer) answered.add(probe);
      if (isAnswer !== false) waiting.delete(fd);
    }
  }
  return answered;
}

export function pingProbe(address: Ip, { bytes, source }: PingOptions = {}): Probe {
  const family = familyOf(address);
  const id = crypto.getRandomValues(new Uint8Array(2));
  return {
    open: () => openSocket(address, SOCK_RAW, family === 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6),
    send(socket) {
      const packet = new Uint8Array(Math.max(8, (bytes ?? 0) - HEADER_BYTES[family]));
      packet.set([ICMP_ECHO[family].request, 0, 0, 0, ...id, 0, 1]);
      // For IPv6, the kernel does it.
      if (family === 4) new DataView(packet.buffer).setUint16(2, checksum(packet));
      if (bytes !== undefined) forbidFragments(socket, family);
      if (source !== undefined) bind(socket, source);
      connect(socket, address, 0);
      sys.send(socket.fd, packet, packet.length, 0);
    },
    awaited: POLLIN,
    isAnswer: (socket) => isEchoReply(socket, family, id),
  };
}

/** @throws {SystemError} `EPERM` without CAP_NET_RAW */
export function isPingAnswered(address: Ip, timeoutMs: number, options: PingOptions = {}): boolean {
  return findAnswered([pingProbe(address, options)], timeoutMs).size > 0;
}

/** IPv4 sockets receive the IP header too. */
function receiveTransport({ fd }: Descriptor, family: 4 | 6): Uint8Array {
  const buffer = new Uint8Array(128);
  const length = ignoreErrors(["EAGAIN"], () => sys.recv(fd, buffer, buffer.length, MSG_DONTWAIT)) ?? 0;
  return buffer.subarray(family === 4 ? (buffer[0]! & 0xf) * 4 : 0, length);
}

function isEchoReply(socket: Descriptor, family: 4 | 6, id: Uint8Array): boolean {
  const message = receiveTransport(socket, family);
  return message[0] === ICMP_ECHO[family].reply && message[4] === id[0] && message[5] === id[1];
}

/** @see RFC 1071 */
function checksum(bytes: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < bytes.length; i += 2) sum += bytes[i]! << 8 | bytes[i + 1]!;
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return ~sum & 0xffff;
}

/** How a TCP connection began. `blocked`: a blackhole or prohibit route leads there. */
export type ConnectionOutcome = "connected" | "refused" | "timed out" | "unreachable" | "blocked";

export function tryTcpConnection(address: Ip, port: number, timeoutMs: number): ConnectionOutcome {
  using socket = openSocket(address, SOCK_STREAM | O_NONBLOCK, 0);
  try {
    connect(socket, address, port);
    return "connected";
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    if (error.code !== "EINPROGRESS") return outcomeOf(error);
  }
  if (!pollFor(socket.fd, POLLOUT, timeoutMs)) return "timed out";
  const error = takeSocketError(socket.fd);
  return error ? outcomeOf(error) : "connected";
}

/** A refusal answers it, too. */
export function tcpProbe(address: Ip, port: number): Probe {
  return {
    open: () => openSocket(address, SOCK_STREAM | O_NONBLOCK, 0),
    // What the kernel refuses at once is writable.
    send: (socket) => void ignoreErrors(["EINPROGRESS", "ECONNREFUSED"], () => connect(socket, address, port)),
    awaited: POLLOUT,
    isAnswer({ fd }) {
      const error = takeSocketError(fd);
      if (error && error.code !== "ECONNREFUSED") throw error;
      return true;
    },
  };
}

/**
 * Whether packets arrive, if only where somebody says that nobody has the address.
 *
 * @param source an address of this host
 */
export function arrivalProbe(source: Ip, address: Ip, port: number): Probe {
  return {
    open: () => openSocket(address, SOCK_STREAM | O_NONBLOCK, 0),
    send(socket) {
      bind(socket, source);
      ignoreErrors(["EINPROGRESS"], () => connect(socket, address, port));
    },
    awaited: POLLOUT,
    isAnswer: ({ fd }) => takeSocketError(fd)?.code !== "ETIMEDOUT",
  };
}

// linux/tcp.h struct tcphdr
const SEGMENT_BYTES = 20;
const CHECKSUM_AT = 16;
const SYN_FLAG = 2;
// Not among those that the kernel gives its own connections, unless somebody has changed that.
const FIRST_PROBE_PORT = 61_000;
const PROBE_PORTS = 4000;

/**
 * The first packet of a TCP connection whose checksum this program has computed. The kernel leaves that of its own
 * connections to the network card.
 *
 * @param source an address of this host
 */
export function synProbe(source: Ip, address: Ip, port: number): Probe {
  const family = familyOf(address);
  const ownPort = FIRST_PROBE_PORT + Math.floor(Math.random() * PROBE_PORTS);
  return {
    open: () => openSocket(address, SOCK_RAW, IPPROTO_TCP),
    send(socket) {
      const packet = synPacket(source, address, ownPort, port);
      bind(socket, source);
      connect(socket, address, 0);
      sys.send(socket.fd, packet, packet.length, 0);
    },
    awaited: POLLIN,
    isAnswer: (socket) => hasTcpPorts(receiveTransport(socket, family), port, ownPort),
  };
}

function synPacket(source: Ip, address: Ip, ownPort: number, port: number): Uint8Array {
  const packet = new Uint8Array(SEGMENT_BYTES);
  const view = new DataView(packet.buffer);
  view.setUint16(0, ownPort);
  view.setUint16(2, port);
  crypto.getRandomValues(packet.subarray(4, 8));
  view.setUint8(12, SEGMENT_BYTES / 4 << 4);
  view.setUint8(13, SYN_FLAG);
  view.setUint16(14, 1024);
  const pseudoHeader = [...ipBytes(source), ...ipBytes(address), 0, IPPROTO_TCP, 0, SEGMENT_BYTES];
  view.setUint16(CHECKSUM_AT, checksum(Uint8Array.of(...pseudoHeader, ...packet)));
  return packet;
}

function hasTcpPorts(segment: Uint8Array, source: number, destination: number): boolean {
  if (segment.length < SEGMENT_BYTES) return false;
  const view = new DataView(segment.buffer, segment.byteOffset);
  return view.getUint16(0) === source && view.getUint16(2) === destination;
}

/** Most services are silent, since the datagram means nothing to them. */
export type DatagramOutcome = Exclude<ConnectionOutcome, "connected"> | "answered" | "silent";

/** Sends one byte. `refused`: an ICMP message says that nobody takes it. */
export function tryUdpDatagram(address: Ip, port: number, timeoutMs: number): DatagramOutcome {
  using socket = openSocket(address, SOCK_DGRAM, 0);
  const buffer = new Uint8Array(1);
  try {
    connect(socket, address, port);
    sys.send(socket.fd, buffer, buffer.length, 0);
    if (!awaitReadable(socket.fd, timeoutMs)) return "silent";
    sys.recv(socket.fd, buffer, buffer.length, MSG_DONTWAIT);
    return "answered";
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    return outcomeOf(error);
  }
}

function outcomeOf(error: SystemError): Exclude<ConnectionOutcome, "connected"> {
  if (error.code === "ECONNREFUSED") return "refused";
  if (error.code === "ETIMEDOUT") return "timed out";
  if (BLOCKED.includes(error.code)) return "blocked";
  if (UNREACHABLE.includes(error.code)) return "unreachable";
  throw error;
}

const UNREACHABLE = ["ENETUNREACH", "EHOSTUNREACH", "ENETDOWN", "EHOSTDOWN", "EPERM", "EADDRNOTAVAIL", "EMSGSIZE"];
/** EINVAL of a blackhole route, EACCES of a prohibit route. */
const BLOCKED = ["EINVAL", "EACCES"];

/** Firewalls refuse with an ICMP message. */
const REFUSED = ["ECONNREFUSED", "ENOPROTOOPT"];

function unlessRefused<T>(call: () => T): T | undefined {
  return ignoreErrors([...UNREACHABLE, ...BLOCKED, ...REFUSED], call);
}

function openSocket(address: Ip, type: number, protocol: number): Descriptor {
  const family = familyOf(address) === 4 ? AF_INET : AF_INET6;
  return descriptor(withPurpose("open a socket", () => sys.socket(family, type | SOCK_CLOEXEC, protocol)));
}

function forbidFragments({ fd }: Descriptor, family: 4 | 6): void {
  const { level, option } = MTU_DISCOVER[family];
  sys.setsockopt(fd, level, option, new Int32Array([IP_PMTUDISC_PROBE]), 4);
}

function bind({ fd }: Descriptor, address: Ip): void {
  const sockaddr = toSockaddr({ address, port: 0 });
  sys.bind(fd, sockaddr, sockaddr.length);
}

function connect({ fd }: Descriptor, address: Ip, port: number): void {
  const sockaddr = toSockaddr({ address, port });
  sys.connect(fd, sockaddr, sockaddr.length);
}
