/** What a packet and a connection cost from one namespace to another. @module */
import { dlopen } from "bun:ffi";
import { familyOf, parseIp } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { newPacketReceiver, sendPacketTo, type SocketEndpoint, toSockaddr } from "../../../ffi/sys/inet_socket.ts";
import { sys } from "../../../ffi/sys/libc.ts";
import { awaitReadable } from "../../../ffi/sys/poll.ts";
import {
  AF_INET,
  AF_INET6,
  SO_LINGER,
  SOCK_CLOEXEC,
  SOCK_DGRAM,
  SOCK_STREAM,
  SOL_SOCKET,
} from "../../../ffi/sys/uapi.ts";
import { median } from "./statistics.ts";

const BURST = 50;
const PATIENCE_MS = 1000;

// Unlike those of `ffi/`, these wait.
const { connect, listen } = dlopen("libc.so.6", {
  connect: { args: ["i32", "ptr", "u32"], returns: "i32" },
  listen: { args: ["i32", "i32"], returns: "i32" },
}).symbols;

export interface TrafficPorts {
  readonly tcp: number;
  readonly udp: number;
}

const requireSuccess = (result: number, what: string): number => {
  if (result < 0) throw new Error(`Cannot ${what}`);
  return result;
};

const openSocket = (family: 4 | 6, type: number): number =>
  requireSuccess(sys.socket(family === 4 ? AF_INET : AF_INET6, type | SOCK_CLOEXEC, 0), "open a socket");

export interface TrafficSink extends Disposable {
  /** Answers one packet, which waits: so its flow is established. @throws {Error} if none comes */
  answer(): void;
}

/** Listens in a namespace on all addresses. Its TCP connections wait: nobody accepts them. */
export function openTrafficSink(netns: Netns, family: 4 | 6, ports: TrafficPorts): TrafficSink {
  const open = (type: number, port: number): number => {
    const fd = openSocket(family, type);
    const sockaddr = toSockaddr({ address: parseIp(family === 4 ? "0.0.0.0" : "::")!, port });
    requireSuccess(sys.bind(fd, sockaddr, sockaddr.length), `listen on port ${port}`);
    if (type === SOCK_STREAM) requireSuccess(listen(fd, 4096), "listen");
    return fd;
  };
  const [tcp, udp] = netns.run(() => [open(SOCK_STREAM, ports.tcp), open(SOCK_DGRAM, ports.udp)] as const);
  return {
    answer() {
      const { receive, sender } = newPacketReceiver(1);
      awaitReadable(udp, PATIENCE_MS);
      if (!receive(udp)) throw new Error("No packet has come");
      sendPacketTo(udp, new Uint8Array(1), sender());
    },
    [Symbol.dispose]: () => [tcp, udp].forEach((fd) => sys.close(fd)),
  };
}

/** A connection that one side ends with a reset. @returns the median in µs */
export function connectionCost(to: SocketEndpoint, count: number): number {
  const reset = new Int32Array([1, 0]);
  const times = Array.from({ length: count }, () => {
    const fd = openSocket(familyOf(to.address), SOCK_STREAM);
    const started = performance.now();
    connectSocket(fd, to);
    const ms = performance.now() - started;
    sys.setsockopt(fd, SOL_SOCKET, SO_LINGER, reset, 8);
    sys.close(fd);
    return ms;
  });
  return median(times) * 1000;
}

/** A small packet of an established flow: the kernel carries it to the other namespace before `send` returns. @returns the median in µs */
export function datagramCost(to: SocketEndpoint, bursts: number, sink: TrafficSink): number {
  const fd = connectDatagrams(to);
  const payload = new Uint8Array(64);
  sys.send(fd, payload, payload.length, 0);
  sink.answer();
  const times = Array.from({ length: bursts }, () => {
    const started = performance.now();
    for (let at = 0; at < BURST; at++) sys.send(fd, payload, payload.length, 0);
    return performance.now() - started;
  });
  sys.close(fd);
  return median(times) / BURST * 1000;
}

/** @returns the descriptor of a socket, from another port each time */
export function connectDatagrams(to: SocketEndpoint): number {
  const fd = openSocket(familyOf(to.address), SOCK_DGRAM);
  connectSocket(fd, to);
  return fd;
}

function connectSocket(fd: number, to: SocketEndpoint): void {
  const sockaddr = toSockaddr(to);
  requireSuccess(connect(fd, sockaddr, sockaddr.length), `connect to port ${to.port}`);
}
