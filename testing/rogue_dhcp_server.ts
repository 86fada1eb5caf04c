/**
 * A program for a namespace with DHCP clients on its eth0: answers each of their messages with a hundred answers that are
 * damaged, or of a server that nobody asked. Its argument is a seed.
 *
 * @module
 */
import { type Ip, parseMac } from "../ffi/address.ts";
import { openNetns } from "../ffi/netns/netns.ts";
import { openPacketSocket } from "../ffi/packet/packet_socket.ts";
import { BROADCAST_MAC, decodeUdpFrame, encodeUdpFrame } from "../ffi/packet/udp_frame.ts";
import * as link from "../ffi/route/link.ts";
import { pollAny } from "../ffi/sys/poll.ts";
import { encodeRequest } from "../plugins/dhcp/server/message.ts";

const [SERVER_PORT, CLIENT_PORT] = [67, 68];
const ROGUE = [10, 7, 0, 66];
const ANSWERS_PER_REQUEST = 100;

/** A generator of numbers below `limit`. @see https://en.wikipedia.org/wiki/Lehmer_random_number_generator */
function newRandom(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => (state = state * 48_271 % 2_147_483_647) % limit;
}

function answerTo(request: Uint8Array, random: (limit: number) => number): Uint8Array {
  const view = new DataView(request.buffer, request.byteOffset, request.length);
  const payload = encodeRequest({
    type: random(2) === 0 ? "ack" : "nak",
    xid: view.getUint32(4),
    secs: 0,
    broadcast: true,
    chaddr: parseMac(Array.from(request.subarray(28, 34), (byte) => byte.toString(16).padStart(2, "0")).join(":")),
    options: new Map([
      [1, Uint8Array.of(255, 255, 255, 0)],
      [3, Uint8Array.from(ROGUE)],
      [51, Uint8Array.of(0, 0, 0, random(20))],
      [54, Uint8Array.from(ROGUE)],
      [119, Uint8Array.of(1, 97, 0xc0, random(4))],
      [121, Uint8Array.of(random(64), 10, 9, 0, 10, 7, 0, 1)],
    ]),
  });
  payload[0] = 2;
  payload.set([10, 7, 0, 66], 16);
  for (let i = random(6); i > 0; i--) {
    // The number and address of the client stay, or the answer would reach nobody.
    const at = 34 + random(payload.length - 34);
    payload[at] = random(256);
  }
  // Damage must not make it an offer.
  return payload.subarray(0, random(3) === 0 ? 34 + random(payload.length - 34) : payload.length);
}

const random = newRandom(Number(process.argv[2]));
using lan = openNetns("/proc/thread-self/ns/net");
const { index, mac } = link.get(lan.route, "eth0");
// The first bytes of every request: BOOTREQUEST, Ethernet, six bytes of address, no hops.
using socket = openPacketSocket(index, {
  destinationPort: SERVER_PORT,
  word: { offset: 0, value: 0x01_01_06_00 },
});
console.log("ready");
for (;;) {
  pollAny([socket.fd]);
  const request = decodeUdpFrame(socket.receive()!)?.payload;
  if (!request) continue;
  for (let i = 0; i < ANSWERS_PER_REQUEST; i++) {
    socket.send(encodeUdpFrame({
      source: { mac: mac!, ip: ROGUE.join(".") as Ip, port: SERVER_PORT },
      destination: { mac: BROADCAST_MAC, ip: "255.255.255.255" as Ip, port: CLIENT_PORT },
      payload: answerTo(request, random),
    }));
  }
  console.log("answered");
}
