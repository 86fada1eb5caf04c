/** IPv4 Address Conflict Detection. @see RFC 5227, packet(7) @module */
import { type Ip, ipBytes, type Mac, macBytes, macFromBytes } from "../address.ts";
import { ignoreErrors, withPurpose } from "../sys/error.ts";
import { type Descriptor, descriptor } from "../sys/file.ts";
import { awaitReadable } from "../sys/poll.ts";
import { sys } from "../sys/libc.ts";
import { AF_PACKET, ETH_P_ARP, ETH_P_IP, MSG_DONTWAIT, SOCK_CLOEXEC, SOCK_RAW } from "../sys/uapi.ts";

export const ARPHRD_ETHER = 1;
const ARPOP_REQUEST = 1;

export const PROBE_COUNT = 2;
/** Most answers to a probe take less than a millisecond. */
export const PROBE_WAIT_MS = 100;

export interface AddressClaimant {
  readonly address: Ip;
  readonly mac: Mac;
}

export interface ArpSocket extends Descriptor {
  /** For callers with a loop of their own, see {@linkcode receiveClaim}. */
  sendProbe(addresses: readonly Ip[]): void;
  /** A claim of one of these addresses, if the next frame is one. */
  receiveClaim(addresses: readonly Ip[]): AddressClaimant | undefined;
  /** Takes a fifth of a second. @returns the first claim */
  probe(addresses: readonly Ip[]): AddressClaimant | undefined;
  announce(addresses: readonly Ip[]): void;
}

/**
 * Listens on a link that is up. Call it in the link's namespace.
 *
 * @param mac whose answers are ignored
 * @throws {SystemError} `EPERM` without CAP_NET_RAW
 */
export function openArpSocket(index: number, mac: Mac): ArpSocket {
  const ownMac = macBytes(mac);
  const socket = descriptor(
    withPurpose("open packet socket", () => sys.socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ARP))),
  );
  try {
    // struct sockaddr_ll { u16 family; be16 protocol; s32 ifindex; u16 hatype; u8 pkttype; u8 halen; u8 addr[8]; }
    const address = new Uint32Array([AF_PACKET | htons(ETH_P_ARP) << 16, index, 0, 0, 0]);
    withPurpose(`listen on link ${index}`, () => sys.bind(socket.fd, address, 20));
  } catch (error) {
    socket[Symbol.dispose]();
    throw error;
  }
  const send = (frame: Uint8Array) => {
    // A blocked or broken wire has no listeners.
    ignoreErrors(["ENOBUFS", "ENETDOWN"], () => sys.send(socket.fd, frame, frame.length, 0));
  };
  const arp: ArpSocket = {
    ...socket,
    sendProbe: (addresses) => addresses.forEach((ip) => send(newArpRequest(ownMac, UNSPECIFIED, ipBytes(ip)))),
    receiveClaim: (addresses) => receiveClaimant(socket.fd, ownMac, addresses),
    probe: (addresses) => probe(arp, addresses),
    announce: (addresses) => addresses.forEach((ip) => send(newArpRequest(ownMac, ipBytes(ip), ipBytes(ip)))),
  };
  return arp;
}

const htons = (value: number): number => (value & 0xff) << 8 | value >> 8;

const UNSPECIFIED = new Uint8Array(4);

function probe(arp: ArpSocket, addresses: readonly Ip[]): AddressClaimant | undefined {
  for (let round = 0; round < PROBE_COUNT; round++) {
    arp.sendProbe(addresses);
    const deadline = performance.now() + PROBE_WAIT_MS;
    for (let remainingMs = PROBE_WAIT_MS; remainingMs > 0; remainingMs = Math.ceil(deadline - performance.now())) {
      if (!awaitReadable(arp.fd, remainingMs)) break;
      const claimant = arp.receiveClaim(addresses);
      if (claimant) return claimant;
    }
  }
  return undefined;
}

const FRAME_LENGTH = 42;

function receiveClaimant(fd: number, ownMac: Uint8Array, addresses: readonly Ip[]): AddressClaimant | undefined {
  const frame = new Uint8Array(FRAME_LENGTH);
  const length = ignoreErrors(["EAGAIN", "ENETDOWN"], () => sys.recv(fd, frame, frame.length, MSG_DONTWAIT));
  if (length !== FRAME_LENGTH || equalBytes(frame.subarray(22, 28), ownMac)) return undefined;
  const sender = frame.subarray(28, 32);
  const target = frame.subarray(38, 42);
  // A probe by a host that is about to take the address.
  const claimed = equalBytes(sender, UNSPECIFIED) && frame[21] === ARPOP_REQUEST ? target : sender;
  const address = addresses.find((ip) => equalBytes(ipBytes(ip), claimed));
  return address && { address, mac: macFromBytes(frame.subarray(22, 28)) };
}

function equalBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.every((byte, i) => byte === b[i]);
}

/** @see RFC 826 */
function newArpRequest(mac: Uint8Array, sender: Uint8Array, target: Uint8Array): Uint8Array {
  const frame = new Uint8Array(FRAME_LENGTH);
  const view = new DataView(frame.buffer);
  frame.fill(0xff, 0, 6);
  frame.set(mac, 6);
  view.setUint16(12, ETH_P_ARP);
  view.setUint16(14, ARPHRD_ETHER);
  view.setUint16(16, ETH_P_IP);
  frame.set([6, 4], 18);
  view.setUint16(20, ARPOP_REQUEST);
  frame.set(mac, 22);
  frame.set(sender, 28);
  frame.set(target, 38);
  return frame;
}
