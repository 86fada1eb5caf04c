/** UDP and TCP sockets that never wait. @see ip(7), ipv6(7), udp(7), tcp(7), linux/in.h, linux/in6.h @module */
import { familyOf, type Ip, ipBytes, ipFromBytes } from "../address.ts";
import { ignoreErrors, ignoreSystemErrors, SystemError, withPurpose } from "./error.ts";
import { type Descriptor, descriptor } from "./file.ts";
import { sys } from "./libc.ts";
import {
  AF_INET,
  AF_INET6,
  IPPROTO_IPV6,
  IPPROTO_TCP,
  IPPROTO_UDP,
  MSG_DONTWAIT,
  MSG_NOSIGNAL,
  O_NONBLOCK,
  SOCK_CLOEXEC,
  SOCK_DGRAM,
  SOCK_STREAM,
  SOL_SOCKET,
} from "./uapi.ts";

// asm-generic/socket.h, linux/in.h, linux/in6.h
const SO_REUSEADDR = 2;
const SO_ERROR = 4;
const SO_RCVBUF = 8;
const SO_BINDTODEVICE = 25;
const SO_MEMINFO = 55;
// linux/sock_diag.h
const SK_MEMINFO_WMEM_ALLOC = 2;
const SK_MEMINFO_VARS = 9;
const IPPROTO_IP = 0;
const IP_FREEBIND = 15;
// IPV6_V6ONLY and IPV6_FREEBIND.
export const V6ONLY = 26;
const V6_FREEBIND = 78;

const MAX_WAITING_CONNECTIONS = 128;
// Holds a burst of short questions; the kernel limits it by net.core.rmem_max.
const RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024;
// sizeof(struct sockaddr_in6)
export const MAX_SOCKADDR_BYTES = 28;

export interface SocketEndpoint {
  readonly address: Ip;
  readonly port: number;
  /** The index of a link, for link-local addresses. */
  readonly scopeId?: number;
}

export interface ListenEndpoint extends SocketEndpoint {
  /** Only packets count that come in by this link. */
  readonly device: string;
}

/** Makes struct sockaddr_in or sockaddr_in6. */
export function toSockaddr({ address, port, scopeId = 0 }: SocketEndpoint): Uint8Array {
  const isV4 = familyOf(address) === 4;
  const bytes = new Uint8Array(isV4 ? 16 : MAX_SOCKADDR_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, isV4 ? AF_INET : AF_INET6, true);
  view.setUint16(2, port);
  bytes.set(ipBytes(address), isV4 ? 4 : 8);
  if (!isV4) view.setUint32(24, scopeId, true);
  return bytes;
}

export function sockaddrIp(sockaddr: Uint8Array): Ip {
  return ipFromBytes(sockaddr[0] === AF_INET ? sockaddr.subarray(4, 8) : sockaddr.subarray(8, 24));
}

/**
 * The link must have the address by the time of the first packet, not now.
 *
 * @throws {SystemError} `EADDRINUSE`; `ENODEV` without the link
 */
export function listenUdp(endpoint: ListenEndpoint): Descriptor {
  return bindToDevice(endpoint, SOCK_DGRAM, (socket) => {
    setOption(socket, SOL_SOCKET, SO_RCVBUF, RECEIVE_BUFFER_BYTES);
  });
}

export function listenTcp(endpoint: ListenEndpoint): Descriptor {
  const socket = bindToDevice(endpoint, SOCK_STREAM, ({ fd }) => setOption({ fd }, SOL_SOCKET, SO_REUSEADDR, 1));
  try {
    withPurpose(describeListening(endpoint), () => sys.listen(socket.fd, MAX_WAITING_CONNECTIONS));
    return socket;
  } catch (error) {
    socket[Symbol.dispose]();
    throw error;
  }
}

function bindToDevice(endpoint: ListenEndpoint, type: number, setOptions: (socket: Descriptor) => void): Descriptor {
  const socket = openInetSocket(endpoint.address, type);
  try {
    withPurpose(describeListening(endpoint), () => {
      if (familyOf(endpoint.address) === 6) setOption(socket, IPPROTO_IPV6, V6ONLY, 1);
      const [level, option] = FREEBIND[familyOf(endpoint.address)];
      setOption(socket, level, option, 1);
      setOptions(socket);
      const device = new TextEncoder().encode(`${endpoint.device}\0`);
      sys.setsockopt(socket.fd, SOL_SOCKET, SO_BINDTODEVICE, device, device.length);
      const sockaddr = toSockaddr(endpoint);
      sys.bind(socket.fd, sockaddr, sockaddr.length);
    });
    return socket;
  } catch (error) {
    socket[Symbol.dispose]();
    throw error;
  }
}

// An IPv6 address cannot be bound normally during duplicate address detection.
const FREEBIND = { 4: [IPPROTO_IP, IP_FREEBIND], 6: [IPPROTO_IPV6, V6_FREEBIND] } as const;

const describeListening = ({ address, port, device }: ListenEndpoint): string =>
  `listen on "${address}" port ${port} of link "${device}"`;

/** A UDP socket with a random port, which receives from this peer only. @throws {SystemError} without a route */
export function connectUdp(peer: SocketEndpoint): Descriptor {
  return connectSocket(peer, SOCK_DGRAM);
}

/** A TCP connection that is established once it is writable, see {@linkcode takeSocketError}. */
export function connectTcp(peer: SocketEndpoint): Descriptor {
  return connectSocket(peer, SOCK_STREAM);
}

function connectSocket(peer: SocketEndpoint, type: number): Descriptor {
  const socket = openInetSocket(peer.address, type);
  const sockaddr = toSockaddr(peer);
  try {
    ignoreErrors(["EINPROGRESS"], () => sys.connect(socket.fd, sockaddr, sockaddr.length));
    return socket;
  } catch (error) {
    socket[Symbol.dispose]();
    throw error;
  }
}

function openInetSocket(address: Ip, type: number): Descriptor {
  const family = familyOf(address) === 4 ? AF_INET : AF_INET6;
  const protocol = type === SOCK_DGRAM ? IPPROTO_UDP : IPPROTO_TCP;
  return descriptor(
    withPurpose("open a socket", () => sys.socket(family, type | SOCK_CLOEXEC | O_NONBLOCK, protocol)),
  );
}

function setOption({ fd }: { readonly fd: number }, level: number, option: number, value: number): void {
  sys.setsockopt(fd, level, option, new Int32Array([value]), 4);
}

/** The failure that ended a connection or its attempt. */
export function takeSocketError(fd: number): SystemError | undefined {
  const value = new Uint32Array(1);
  sys.getsockopt(fd, SOL_SOCKET, SO_ERROR, value, new Uint32Array([4]));
  return value[0] === 0 ? undefined : new SystemError("connect", value[0]!);
}

export interface PacketReceiver {
  /** Valid until the next call; `undefined` if there is none. */
  receive(fd: number): Uint8Array | undefined;
  sender(): Uint8Array;
}

export function newPacketReceiver(maxBytes: number): PacketReceiver {
  const buffer = new Uint8Array(maxBytes);
  const sockaddr = new Uint8Array(MAX_SOCKADDR_BYTES);
  const sockaddrLength = new Uint32Array(1);
  return {
    receive(fd) {
      sockaddrLength[0] = MAX_SOCKADDR_BYTES;
      // Also after errors of earlier packets, which the kernel tells once.
      const length = ignoreSystemErrors(
        () => sys.recvfrom(fd, buffer, buffer.length, MSG_DONTWAIT, sockaddr, sockaddrLength),
      );
      return length === undefined ? undefined : buffer.subarray(0, length);
    },
    sender: () => sockaddr.slice(0, sockaddrLength[0]),
  };
}

/** What the kernel cannot send is lost, as on the wire. */
export function sendPacketTo(fd: number, packet: Uint8Array, sockaddr: Uint8Array): void {
  ignoreSystemErrors(() =>
    sys.sendto(fd, packet, packet.length, MSG_DONTWAIT | MSG_NOSIGNAL, sockaddr, sockaddr.length)
  );
}

/** What the socket has sent and the kernel still keeps, with the kernel's own share. */
export function unsentBytes(fd: number): number {
  const words = new Uint32Array(SK_MEMINFO_VARS);
  sys.getsockopt(fd, SOL_SOCKET, SO_MEMINFO, words, new Uint32Array([words.byteLength]));
  return words[SK_MEMINFO_WMEM_ALLOC]!;
}

/** Returns `undefined` if there is none. @throws {SystemError} without a free descriptor or memory */
export function acceptFrom(
  listener: number,
): { readonly socket: Descriptor; readonly sockaddr: Uint8Array } | undefined {
  const sockaddr = new Uint8Array(MAX_SOCKADDR_BYTES);
  const length = new Uint32Array([MAX_SOCKADDR_BYTES]);
  const fd = ignoreErrors(
    ["EAGAIN", "ECONNABORTED"],
    () => sys.accept4(listener, sockaddr, length, SOCK_CLOEXEC | O_NONBLOCK),
  );
  return fd === undefined ? undefined : { socket: descriptor(fd), sockaddr: sockaddr.slice(0, length[0]) };
}

/** Returns `undefined` if the connection takes nothing now, 0 if its other side is gone. */
export function sendBytes(fd: number, bytes: Uint8Array): number | undefined {
  return unlessGone(() => sys.send(fd, bytes, bytes.length, MSG_DONTWAIT | MSG_NOSIGNAL));
}

/** Returns what {@linkcode sendBytes} does. */
export function receiveBytes(fd: number, buffer: Uint8Array): number | undefined {
  return unlessGone(() => sys.recv(fd, buffer, buffer.length, MSG_DONTWAIT));
}

function unlessGone(call: () => number): number | undefined {
  try {
    return call();
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    return error.code === "EAGAIN" ? undefined : 0;
  }
}
