/**
 * A program for a container with raw sockets: asks 10.88.0.1 for names that nobody knows, each question in the name of
 * one of the addresses in its arguments. It ends by itself.
 *
 * @module
 */
import { parseIp } from "../ffi/address.ts";
import { openNetns } from "../ffi/netns/netns.ts";
import { openPacketSocket } from "../ffi/packet/packet_socket.ts";
import { encodeUdpFrame } from "../ffi/packet/udp_frame.ts";
import * as link from "../ffi/route/link.ts";

const QUESTIONS_PER_BURST = 15;
const BURST_MS = 10;
/** So many bursts take half a minute. */
const BURSTS = 3000;
/** Others may begin to ask. */
const READY_AFTER = 200;

const sources = process.argv.slice(3).map(parseIp);
using netns = openNetns("/proc/thread-self/ns/net");
const { index, mac } = link.get(netns.route, "eth0");
using socket = openPacketSocket(index);
const destination = { mac: process.argv[2] as typeof mac & string, ip: parseIp("10.88.0.1"), port: 53 };

function question(number: number): Uint8Array {
  const labels = [`x${number}`, "silent", "test"].flatMap((label) => [label.length, ...Buffer.from(label)]);
  return Uint8Array.from([number >> 8, number, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, ...labels, 0, 0, 1, 0, 1]);
}

const start = performance.now();
for (let burst = 1; burst <= BURSTS; burst++) {
  for (let i = 0; i < QUESTIONS_PER_BURST; i++) {
    const asked = (burst - 1) * QUESTIONS_PER_BURST + i;
    const source = { mac: mac!, ip: sources[asked % sources.length]!, port: 1024 + asked % 60_000 };
    socket.send(encodeUdpFrame({ source, destination, payload: question(asked) }));
  }
  if (burst === READY_AFTER) console.log("flooding");
  Bun.sleepSync(Math.max(1, start + burst * BURST_MS - performance.now()));
}
