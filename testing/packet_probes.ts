/**
 * Asks by one packet for each flow whether it passes: a connection of TCP, a datagram of UDP, the first chunk of SCTP.
 *
 * SCTP is sent by raw sockets, as some kernels have none of it.
 *
 * @module
 */
import { familyOf, type Ip, parseIp } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { newPacketReceiver, toSockaddr, V6ONLY } from "../ffi/sys/inet_socket.ts";
import { ignoreErrors } from "../ffi/sys/error.ts";
import { sys } from "../ffi/sys/libc.ts";
import { sleep } from "../ffi/sys/poll.ts";
import {
  AF_INET,
  AF_INET6,
  IPPROTO_IPV6,
  IPPROTO_SCTP,
  IPPROTO_TCP,
  SO_LINGER,
  SOCK_CLOEXEC,
  SOCK_DGRAM,
  SOCK_NONBLOCK,
  SOCK_RAW,
  SOCK_STREAM,
  SOL_SOCKET,
} from "../ffi/sys/uapi.ts";

/** From one address to another; the caller knows whose they are. */
export interface ProbedFlow {
  readonly source: string;
  readonly destination: string;
  readonly protocol: string;
  readonly port: number;
  readonly isAllowed: boolean;
}

const TCP_INFO = 11;
const TCP_ESTABLISHED = 1;
const BACKLOG = 4096;
const IP_OF_ANY = { 4: "0.0.0.0", 6: "::" } as const;

/** What is allowed arrives, however much the machine has to do. */
const PATIENCE_MS = 10_000;
/** What is forbidden would have come with the rest: the kernel carries a packet before its sender goes on. */
const SETTLING_MS = 10;
/** What is allowed is sent again, as connections do: a datagram that waits for its neighbour may be lost. */
const RESEND_MS = 1000;

type Family = 4 | 6;

function openBound(family: Family, type: number, address: Ip, port: number, protocol = 0): number {
  const fd = sys.socket(family === 4 ? AF_INET : AF_INET6, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
  if (family === 6 && type !== SOCK_RAW) sys.setsockopt(fd, IPPROTO_IPV6, V6ONLY, new Int32Array([1]), 4);
  const sockaddr = toSockaddr({ address, port });
  sys.bind(fd, sockaddr, sockaddr.length);
  return fd;
}

/** Listens in a namespace on all addresses. */
class Receiver implements Disposable {
  readonly #listeners: readonly number[];
  readonly #datagrams: readonly number[];
  readonly #raw: readonly (readonly [fd: number, family: Family])[];

  constructor(netns: Netns, ports: readonly number[]) {
    const open = (type: number, protocol = 0) =>
      ([4, 6] as const).flatMap((family) =>
        (type === SOCK_RAW ? [0] : ports).map((port) =>
          openBound(family, type, parseIp(IP_OF_ANY[family]), port, protocol)
        )
      );
    [this.#listeners, this.#datagrams, this.#raw] = netns.run(() => {
      const listeners = open(SOCK_STREAM);
      for (const fd of listeners) sys.listen(fd, BACKLOG);
      const [raw4, raw6] = open(SOCK_RAW, IPPROTO_SCTP) as [number, number];
      return [listeners, open(SOCK_DGRAM), [[raw4, 4], [raw6, 6]]] as const;
    });
  }

  /** Adds the numbers of the packets that have come here. */
  read(heard: Map<number, Receiver>): void {
    const { receive } = newPacketReceiver(256);
    for (const fd of this.#datagrams) {
      for (let packet = receive(fd); packet; packet = receive(fd)) heard.set(viewOf(packet).getUint32(0), this);
    }
    for (const [fd, family] of this.#raw) {
      for (let packet = receive(fd); packet; packet = receive(fd)) {
        // IPv4 packets come with their header.
        const start = family === 4 ? (packet[0]! & 15) * 4 : 0;
        if (packet[start + CHUNK_AT] === INIT) heard.set(viewOf(packet).getUint32(start + CHUNK_AT + 4), this);
      }
    }
  }

  /** Forgets connections that nobody has accepted. */
  forget(): void {
    for (const fd of this.#listeners) {
      for (;;) {
        const accepted = ignoreErrors(["EAGAIN", "ECONNABORTED"], () => sys.accept4(fd, null, null, SOCK_CLOEXEC));
        if (accepted === undefined) break;
        sys.close(accepted);
      }
    }
  }

  [Symbol.dispose](): void {
    for (const fd of [...this.#listeners, ...this.#datagrams, ...this.#raw.map(([raw]) => raw)]) sys.close(fd);
  }
}

const viewOf = ({ buffer, byteOffset, byteLength }: Uint8Array) => new DataView(buffer, byteOffset, byteLength);

/** Keeps its listeners until the end. */
export class PacketProbes implements Disposable {
  readonly #ports: readonly number[];
  readonly #receivers = new Map<Netns, Receiver>();
  #sent = 0;

  constructor(ports: readonly number[]) {
    this.#ports = ports;
  }

  /** @param netnsOf the namespace with an address @returns those that pass and must not, or do not and must */
  probe<T extends ProbedFlow>(flows: readonly T[], netnsOf: (address: string) => Netns): T[] {
    using closing = new DisposableStack();
    const receiverOf = (flow: T) => this.#receiverIn(netnsOf(flow.destination));
    for (const flow of flows) receiverOf(flow);
    const byNumber = new Map<number, T>();
    const connecting = new Map<T, number>();
    const heard = new Map<number, Receiver>();
    const send = (sent: readonly T[]): void => {
      for (const [key, ofSender] of Map.groupBy(sent, ({ source, protocol }) => `${protocol} ${source}`)) {
        const [protocol, source] = key.split(" ") as [string, string];
        const senders = netnsOf(source).run(() =>
          protocol === "TCP" ? this.#connect(ofSender, connecting) : [this.#send(ofSender, byNumber)]
        );
        for (const fd of senders) closing.defer(() => sys.close(fd));
        // Receive buffers hold some two hundred packets.
        for (const receiver of this.#receivers.values()) receiver.read(heard);
      }
    };
    send(flows);
    const passed = () => {
      for (const receiver of this.#receivers.values()) receiver.read(heard);
      const arrived = new Set<T>();
      for (const [number, receiver] of heard) {
        const flow = byNumber.get(number);
        if (flow && receiverOf(flow) === receiver) arrived.add(flow);
      }
      for (const [flow, fd] of connecting) if (isEstablished(fd)) arrived.add(flow);
      return arrived;
    };
    const start = performance.now();
    for (let sentAt = start;;) {
      const now = performance.now();
      const arrived = passed();
      const missing = flows.filter((flow) => flow.isAllowed && !arrived.has(flow));
      if (missing.length === 0 || now > start + PATIENCE_MS) break;
      if (now > sentAt + RESEND_MS) {
        sentAt = now;
        send(missing.filter((flow) => !connecting.has(flow)));
      }
      sleep(SETTLING_MS / 5);
    }
    sleep(SETTLING_MS);
    const arrived = passed();
    for (const fd of connecting.values()) sys.setsockopt(fd, SOL_SOCKET, SO_LINGER, new Int32Array([1, 0]), 8);
    closing.dispose();
    for (const receiver of this.#receivers.values()) receiver.forget();
    return flows.filter((flow) => flow.isAllowed !== arrived.has(flow));
  }

  [Symbol.dispose](): void {
    for (const receiver of this.#receivers.values()) receiver[Symbol.dispose]();
  }

  #receiverIn(netns: Netns): Receiver {
    const receiver = this.#receivers.get(netns) ?? new Receiver(netns, this.#ports);
    this.#receivers.set(netns, receiver);
    return receiver;
  }

  #connect<T extends ProbedFlow>(flows: readonly T[], connecting: Map<T, number>): number[] {
    return flows.map((flow) => {
      const source = parseIp(flow.source);
      const fd = openBound(familyOf(source), SOCK_STREAM, source, 0);
      const sockaddr = toSockaddr({ address: parseIp(flow.destination), port: flow.port });
      ignoreErrors(["EINPROGRESS"], () => sys.connect(fd, sockaddr, sockaddr.length));
      connecting.set(flow, fd);
      return fd;
    });
  }

  #send<T extends ProbedFlow>(flows: readonly T[], byNumber: Map<number, T>): number {
    const { source, protocol } = flows[0]!;
    const address = parseIp(source);
    const isSctp = protocol === "SCTP";
    const fd = openBound(familyOf(address), isSctp ? SOCK_RAW : SOCK_DGRAM, address, 0, isSctp ? IPPROTO_SCTP : 0);
    for (const flow of flows) {
      const number = ++this.#sent;
      byNumber.set(number, flow);
      const packet = isSctp ? sctpInit(number, flow.port) : new Uint8Array(Uint32Array.of(number).buffer).reverse();
      // A raw socket has no port.
      const sockaddr = toSockaddr({ address: parseIp(flow.destination), port: isSctp ? 0 : flow.port });
      sys.sendto(fd, packet, packet.length, 0, sockaddr, sockaddr.length);
    }
    return fd;
  }
}

/** Whether a listener has answered; one that refuses would have been reached too, but all listen. */
function isEstablished(fd: number): boolean {
  const state = new Uint8Array(1);
  sys.getsockopt(fd, IPPROTO_TCP, TCP_INFO, state, new Uint32Array([1]));
  return state[0] === TCP_ESTABLISHED;
}

// RFC 9260, 3. SCTP Packet Format: a common header of 12 bytes, and the chunk INIT.
const CHUNK_AT = 12;
const INIT = 1;
const INIT_BYTES = 20;
const FIRST_PORT = 10_000;
const PORTS = 50_000;

function sctpInit(number: number, port: number): Uint8Array {
  const packet = new Uint8Array(CHUNK_AT + INIT_BYTES);
  const view = viewOf(packet);
  view.setUint16(0, FIRST_PORT + number % PORTS);
  view.setUint16(2, port);
  view.setUint8(CHUNK_AT, INIT);
  view.setUint16(CHUNK_AT + 2, INIT_BYTES);
  view.setUint32(CHUNK_AT + 4, number);
  // The window of the receiver, and one stream in each direction.
  view.setUint32(CHUNK_AT + 8, 65_536);
  view.setUint16(CHUNK_AT + 12, 1);
  view.setUint16(CHUNK_AT + 14, 1);
  view.setUint32(CHUNK_AT + 16, number);
  view.setUint32(8, crc32c(packet), true);
  return packet;
}

/** The checksum of SCTP, with which connections are tracked. */
function crc32c(bytes: Uint8Array): number {
  let crc = 0xffff_ffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >>> 1 ^ 0x82f6_3b78 : crc >>> 1;
  }
  return ~crc >>> 0;
}
