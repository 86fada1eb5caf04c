/** The cost of a packet to a published port, from a neighbour of the host to the container. @module */
import { parseIp } from "../../../ffi/address.ts";
import { createNetns, type Netns } from "../../../ffi/netns/netns.ts";
import { connectOutside } from "../../../testing/outside.ts";
import { connectionCost, datagramCost, openTrafficSink } from "../harness/traffic.ts";
import type { BenchContainer, BenchWorkspace } from "./workspace.ts";

const CONNECTIONS = 300;
const BURSTS = 40;
const HOST = parseIp("192.0.2.1")!;

export function addPeerHost(bench: BenchWorkspace, host: Netns): Netns {
  const outside = bench.scope.use(createNetns());
  connectOutside(host, outside);
  return outside;
}

/** Medians in µs: a connection to the published TCP port of `container`, and a packet of a flow to its published UDP port. */
export function packetCost(outside: Netns, { namespace, portMappings: [tcp, udp] }: BenchContainer) {
  using sink = openTrafficSink(namespace, 4, { tcp: tcp!.containerPort, udp: udp!.containerPort });
  return outside.run(() => ({
    connection: connectionCost({ address: HOST, port: tcp!.hostPort }, CONNECTIONS),
    packet: datagramCost({ address: HOST, port: udp!.hostPort }, BURSTS, sink),
  }));
}
