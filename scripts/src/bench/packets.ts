/** What a packet to a published port costs, from a neighbour of the host to the container. @module */
import { dlopen } from "bun:ffi";
import { AF_INET, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET } from "../../../ffi/sys/uapi.ts";
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import { connectHosts } from "../harness/hosts.ts";
import { median } from "../harness/statistics.ts";
import type { BenchContainer } from "./network.ts";

/** Microseconds. */
export interface PacketCost extends Readonly<Record<string, number>> {
  /** A connection to the published TCP port, from the first packet to the answer. */
  readonly connection: number;
  /** One more packet of a conversation with the published UDP port. */
  readonly packet: number;
}

const SO_LINGER = 13;
const CONNECTIONS = 300;
const BURSTS = 40;
const BURST = 50;

let libcLibrary: ReturnType<typeof openLibc> | undefined;
const libcFunctions = () => libcLibrary ??= openLibc();

function openLibc() {
  return dlopen("libc.so.6", {
    socket: { args: ["i32", "i32", "i32"], returns: "i32" },
    bind: { args: ["i32", "ptr", "u32"], returns: "i32" },
    listen: { args: ["i32", "i32"], returns: "i32" },
    connect: { args: ["i32", "ptr", "u32"], returns: "i32" },
    setsockopt: { args: ["i32", "i32", "i32", "ptr", "u32"], returns: "i32" },
    send: { args: ["i32", "ptr", "usize", "i32"], returns: "i64" },
    close: { args: ["i32"], returns: "i32" },
  }).symbols;
}

/** A `struct sockaddr_in`. */
function socketAddress(ip: readonly number[], port: number): Uint8Array {
  return new Uint8Array([AF_INET, 0, port >> 8, port & 255, ...ip, 0, 0, 0, 0, 0, 0, 0, 0]);
}

const requireSuccess = (result: number, what: string): number => {
  if (result < 0) throw new Error(`Cannot ${what}`);
  return result;
};

/** A neighbour of the host, by which packets come in. */
export function addPeerHost(scope: DisposableStack, host: Netns): Netns {
  const outside = scope.use(createNetns());
  connectHosts(
    { netns: host, name: "outside", addresses: ["192.0.2.1/24"] },
    { netns: outside, name: "inside", addresses: ["192.0.2.2/24"] },
  );
  return outside;
}

/** Measures once, for the ports of `container`. */
export function packetCost(outside: Netns, container: BenchContainer): PacketCost {
  const [tcp, udp] = container.portMappings;
  const server = container.namespace.run(() => {
    const fd = requireSuccess(libcFunctions().socket(AF_INET, SOCK_STREAM, 0), "open a socket");
    requireSuccess(libcFunctions().bind(fd, socketAddress([0, 0, 0, 0], tcp.containerPort), 16), "bind");
    requireSuccess(libcFunctions().listen(fd, 4096), "listen");
    return fd;
  });
  const sink = container.namespace.run(() => {
    const fd = requireSuccess(libcFunctions().socket(AF_INET, SOCK_DGRAM, 0), "open a socket");
    requireSuccess(libcFunctions().bind(fd, socketAddress([0, 0, 0, 0], udp.containerPort), 16), "bind");
    return fd;
  });
  try {
    return outside.run(() => ({ connection: connect(tcp.hostPort), packet: send(udp.hostPort) }));
  } finally {
    libcFunctions().close(server);
    libcFunctions().close(sink);
  }
}

function connect(port: number): number {
  const to = socketAddress([192, 0, 2, 1], port);
  const reset = new Int32Array([1, 0]);
  const times: number[] = [];
  for (let at = 0; at < CONNECTIONS; at++) {
    const fd = requireSuccess(libcFunctions().socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "open a socket");
    const started = performance.now();
    requireSuccess(libcFunctions().connect(fd, to, 16), `connect to port ${port}`);
    times.push(performance.now() - started);
    libcFunctions().setsockopt(fd, SOL_SOCKET, SO_LINGER, reset, 8);
    libcFunctions().close(fd);
  }
  return median(times) * 1000;
}

function send(port: number): number {
  const fd = requireSuccess(libcFunctions().socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "open a socket");
  requireSuccess(libcFunctions().connect(fd, socketAddress([192, 0, 2, 1], port), 16), "connect");
  const payload = new Uint8Array(64);
  const times: number[] = [];
  for (let burst = 0; burst < BURSTS; burst++) {
    const started = performance.now();
    for (let at = 0; at < BURST; at++) libcFunctions().send(fd, payload, payload.length, 0);
    times.push(performance.now() - started);
  }
  libcFunctions().close(fd);
  return median(times) / BURST * 1000;
}
