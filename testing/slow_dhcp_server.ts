/**
 * A program for a namespace with DHCP clients on its eth0: leases 10.7.0.10 to all, and takes its time for it. Its
 * arguments are the milliseconds before an offer and before an acknowledgement; `never` for no answer. Each message that
 * comes is a line of its output: `discover 1234.5`, with the milliseconds since its start.
 *
 * @module
 */
import { type Ip, parseIp } from "../ffi/address.ts";
import { openNetns } from "../ffi/netns/netns.ts";
import { openPacketSocket } from "../ffi/packet/packet_socket.ts";
import { BROADCAST_MAC, decodeUdpFrame, encodeUdpFrame } from "../ffi/packet/udp_frame.ts";
import * as link from "../ffi/route/link.ts";
import { decodeReply, type DhcpReply, encodeRequest, type MessageType } from "../plugins/dhcp/server/message.ts";

const [SERVER_PORT, CLIENT_PORT] = [67, 68];
const SERVER = [10, 7, 0, 1];
const ADDRESS = [10, 7, 0, 10];
const LOOK_MS = 5;

const [offerMs, ackMs] = process.argv.slice(2).map((text) => text === "never" ? undefined : Number(text));
const netns = openNetns("/proc/thread-self/ns/net");
const { index, mac } = link.get(netns.route, "eth0");
// The first bytes of every request: BOOTREQUEST, Ethernet, six bytes of address, no hops.
const socket = openPacketSocket(index, { destinationPort: SERVER_PORT, word: { offset: 0, value: 0x01_01_06_00 } });

function answer({ xid, chaddr }: DhcpReply, type: MessageType): void {
  const payload = encodeRequest({
    type,
    xid,
    secs: 0,
    broadcast: true,
    chaddr,
    options: new Map([
      [1, Uint8Array.of(255, 255, 255, 0)],
      [51, Uint8Array.of(0, 0, 1, 0)],
      [54, Uint8Array.from(SERVER)],
    ]),
  });
  payload[0] = 2;
  payload.set(ADDRESS, 16);
  socket.send(encodeUdpFrame({
    source: { mac: mac!, ip: parseIp(SERVER.join(".")), port: SERVER_PORT },
    destination: { mac: BROADCAST_MAC, ip: "255.255.255.255" as Ip, port: CLIENT_PORT },
    payload,
  }));
}

function answerLater(message: DhcpReply, type: MessageType, delayMs: number | undefined): void {
  if (delayMs !== undefined) setTimeout(() => answer(message, type), delayMs);
}

console.log("ready");
setInterval(() => {
  for (let frame = socket.receive(); frame; frame = socket.receive()) {
    const request = decodeUdpFrame(frame)!.payload.slice();
    // Answers are decoded, and differ from requests in this byte only.
    request[0] = 2;
    const message = decodeReply(request)!;
    console.log(`${message.type} ${performance.now()}`);
    if (message.type === "discover") answerLater(message, "offer", offerMs);
    if (message.type === "request") answerLater(message, "ack", ackMs);
  }
}, LOOK_MS);
