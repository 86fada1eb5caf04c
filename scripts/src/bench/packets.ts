/** The cost of a packet to a published port, from a neighbour of the host to the container. @module */
import { dlopen } from "bun:ffi";
import { createNetns, type Netns } from "../../../ffi/netns/netns.ts";
import { sys } from "../../../ffi/sys/libc.ts";
import { AF_INET, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET } from "../../../ffi/sys/uapi.ts";
import { connectOutside } from "../../../testing/outside.ts";
import { median } from "../harness/statistics.ts";
import type { BenchContainer, BenchWorkspace } from "./workspace.ts";

const SO_LINGER = 13;
const CONNECTIONS = 300;
const BURSTS = 40;
const BURST = 50;

const { connect, listen } = dlopen("libc.so.6", {
  connect: { args: ["i32", "ptr", "u32"], returns: "i32" },
  listen: { args: ["i32", "i32"], returns: "i32" },
}).symbols;

const socketAddress = (ip: readonly number[], port: number): Uint8Array =>
  new Uint8Array([AF_INET, 0, port >> 8, port & 255, ...ip, 0, 0, 0, 0, 0, 0, 0, 0]);

const requireSuccess = (result: number, what: string): number => {
  if (result < 0) throw new Error(`Cannot ${what}`);
  return result;
};

const openSocket = (type: number): number =>
  requireSuccess(sys.socket(AF_INET, type | SOCK_CLOEXEC, 0), "open a socket");

function openServer(type: number, port: number): number {
  const fd = openSocket(type);
  requireSuccess(sys.bind(fd, socketAddress([0, 0, 0, 0], port), 16), "bind");
  if (type === SOCK_STREAM) requireSuccess(listen(fd, 4096), "listen");
  return fd;
}

export function addPeerHost(bench: BenchWorkspace, host: Netns): Netns {
  const outside = bench.scope.use(createNetns());
  connectOutside(host, outside);
  return outside;
}

/** Medians in µs: a connection to the published TCP port of `container`, and a packet of a flow to its published UDP port. */
export function packetCost(outside: Netns, { namespace, portMappings: [tcp, udp] }: BenchContainer) {
  const servers = namespace.run(
    () => [openServer(SOCK_STREAM, tcp!.containerPort), openServer(SOCK_DGRAM, udp!.containerPort)],
  );
  try {
    return outside.run(() => ({ connection: connectionCost(tcp!.hostPort), packet: datagramCost(udp!.hostPort) }));
  } finally {
    servers.forEach((fd) => sys.close(fd));
  }
}

function connectionCost(port: number): number {
  const to = socketAddress([192, 0, 2, 1], port);
  const reset = new Int32Array([1, 0]);
  const times = Array.from({ length: CONNECTIONS }, () => {
    const fd = openSocket(SOCK_STREAM);
    const started = performance.now();
    requireSuccess(connect(fd, to, 16), `connect to port ${port}`);
    const ms = performance.now() - started;
    sys.setsockopt(fd, SOL_SOCKET, SO_LINGER, reset, 8);
    sys.close(fd);
    return ms;
  });
  return median(times) * 1000;
}

function datagramCost(port: number): number {
  const fd = openSocket(SOCK_DGRAM);
  requireSuccess(connect(fd, socketAddress([192, 0, 2, 1], port), 16), "connect");
  const payload = new Uint8Array(64);
  const times = Array.from({ length: BURSTS }, () => {
    const started = performance.now();
    for (let at = 0; at < BURST; at++) sys.send(fd, payload, payload.length, 0);
    return performance.now() - started;
  });
  sys.close(fd);
  return median(times) / BURST * 1000;
}
