/** Tries whether a machine answers, in the thread's namespace. @see raw(7), icmp(7), tcp(7) @module */
import { familyOf, type Ip, ipBytes } from "../address.ts";
import { ignoreErrors, SystemError, withPurpose } from "../sys/error.ts";
import { type Descriptor, descriptor } from "../sys/file.ts";
import { takeSocketError, toSockaddr } from "../sys/inet_socket.ts";
import { sys } from "../sys/libc.ts";
import { awaitReadable, pollFor } from "../sys/poll.ts";
import {
  AF_INET,
  AF_INET6,
  IPPROTO_ICMP,
  IPPROTO_ICMPV6,
  IPPROTO_TCP,
  MSG_DONTWAIT,
  O_NONBLOCK,
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

/** @throws {SystemError} `EPERM` without CAP_NET_RAW */
export function isPingAnswered(address: Ip, timeoutMs: number, { bytes, source }: PingOptions = {}): boolean {
  const family = familyOf(address);
  using socket = openSocket(address, SOCK_RAW, family === 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6);
  const id = crypto.getRandomValues(new Uint8Array(2));
  const packet = new Uint8Array(Math.max(8, (bytes ?? 0) - HEADER_BYTES[family]));
  packet.set([ICMP_ECHO[family].request, 0, 0, 0, ...id, 0, 1]);
  // For IPv6, the kernel does it.
  if (family === 4) new DataView(packet.buffer).setUint16(2, checksum(packet));
  return unlessUnreachable(() => {
    if (bytes !== undefined) forbidFragments(socket, family);
    if (source !== undefined) bind(socket, source);
    connect(socket, address, 0);
    sys.send(socket.fd, packet, packet.length, 0);
    const deadline = performance.now() + timeoutMs;
    for (let left = timeoutMs; left > 0; left = Math.ceil(deadline - performance.now())) {
      if (!awaitReadable(socket.fd, left)) return false;
      if (isEchoReply(socket, family, id)) return true;
    }
    return false;
  }) ?? false;
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

// linux/tcp.h struct tcphdr
const SEGMENT_BYTES = 20;
const CHECKSUM_AT = 16;
const SYN_FLAG = 2;
// Not among those that the kernel gives its own connections, unless somebody has changed that.
const FIRST_PROBE_PORT = 61_000;
const PROBE_PORTS = 4000;

/**
 * Whether anything answers the first packet of a TCP connection whose checksum this program has computed. The kernel
 * leaves that of its own connections to the network card.
 *
 * @param source an address of this host
 * @throws {SystemError} `EPERM` without CAP_NET_RAW
 */
export function isSynAnswered(source: Ip, address: Ip, port: number, timeoutMs: number): boolean {
  const family = familyOf(address);
  using socket = openSocket(address, SOCK_RAW, IPPROTO_TCP);
  const ownPort = FIRST_PROBE_PORT + Math.floor(Math.random() * PROBE_PORTS);
  const packet = synPacket(source, address, ownPort, port);
  return unlessUnreachable(() => {
    bind(socket, source);
    connect(socket, address, 0);
    sys.send(socket.fd, packet, packet.length, 0);
    const deadline = performance.now() + timeoutMs;
    for (let left = timeoutMs; left > 0; left = Math.ceil(deadline - performance.now())) {
      if (!awaitReadable(socket.fd, left)) return false;
      if (hasTcpPorts(receiveTransport(socket, family), port, ownPort)) return true;
    }
    return false;
  }) ?? false;
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

function unlessUnreachable<T>(call: () => T): T | undefined {
  return ignoreErrors([...UNREACHABLE, ...BLOCKED], call);
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
