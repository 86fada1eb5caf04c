/**
 * Asking the machines on a wire which of them has an IPv4 address, before one takes it.
 *
 * @see RFC 5227 (IPv4 Address Conflict Detection), packet(7)
 * @module
 */
import { type Ip, ipBytes, type Mac, macBytes, macFromBytes } from "./address.ts";
import { forPurpose, unless } from "./sys/error.ts";
import { awaitReadable, descriptor } from "./sys/file.ts";
import { sys } from "./sys/libc.ts";

const AF_PACKET = 17;
const SOCK_RAW = 3;
const SOCK_CLOEXEC = 0o2000000;
const MSG_DONTWAIT = 0x40;
const ETH_P_ARP = 0x0806;
const ARPHRD_ETHER = 1;
const ETH_P_IP = 0x0800;
const ARPOP_REQUEST = 1;

/** Questions per address. */
const PROBES = 2;
/** How long the answers to one may take: a machine on the wire needs less than a millisecond, a busy one some more. */
const ANSWER_MS = 100;

/** A machine that has an address. */
export interface Claim {
  readonly address: Ip;
  readonly mac: Mac;
}

/** A conversation about addresses on one wire. */
export interface Arp extends Disposable {
  /** Asks for each of these addresses, a fifth of a second in all. @returns the first claim @throws {SystemError} */
  findClaim(addresses: readonly Ip[]): Claim | undefined;
  /** Tells everybody that these addresses are here, so that what they remember of an earlier machine goes. @throws {SystemError} */
  announce(addresses: readonly Ip[]): void;
}

/**
 * Listens to the wire of a link; call it inside the namespace of the link, which must be up.
 *
 * @param index of the link
 * @param mac whose answers count as one's own
 * @throws {SystemError} `EPERM` without CAP_NET_RAW
 */
export function openArp(index: number, mac: Mac): Arp {
  const own = macBytes(mac);
  const socket = descriptor(
    forPurpose("open packet socket", () => sys.socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, swapped(ETH_P_ARP))),
  );
  try {
    // struct sockaddr_ll { u16 family; be16 protocol; s32 ifindex; u16 hatype; u8 pkttype; u8 halen; u8 addr[8]; }
    const address = new Uint32Array([AF_PACKET | swapped(ETH_P_ARP) << 16, index, 0, 0, 0]);
    forPurpose(`listen on link ${index}`, () => sys.bind(socket.fd, address, 20));
  } catch (error) {
    socket[Symbol.dispose]();
    throw error;
  }
  const send = (frame: Uint8Array) => {
    // A wire that takes nothing at the moment has nobody to hear it.
    unless(["ENOBUFS", "ENETDOWN"], () => sys.send(socket.fd, frame, frame.length, 0));
  };
  return {
    findClaim: (addresses) => findClaim(socket.fd, own, addresses, send),
    announce: (addresses) => addresses.forEach((each) => send(requestFrame(own, ipBytes(each), ipBytes(each)))),
    [Symbol.dispose]: () => socket[Symbol.dispose](),
  };
}

const swapped = (value: number): number => (value & 0xff) << 8 | value >> 8;

const NOBODY = new Uint8Array(4);

function findClaim(
  fd: number,
  own: Uint8Array,
  addresses: readonly Ip[],
  send: (frame: Uint8Array) => void,
): Claim | undefined {
  for (let round = 0; round < PROBES; round++) {
    for (const each of addresses) send(requestFrame(own, NOBODY, ipBytes(each)));
    const deadline = performance.now() + ANSWER_MS;
    for (let left = ANSWER_MS; left > 0; left = Math.ceil(deadline - performance.now())) {
      if (!awaitReadable(fd, left)) break;
      const claim = receiveClaim(fd, own, addresses);
      if (claim) return claim;
    }
  }
  return undefined;
}

const FRAME_LENGTH = 42;

function receiveClaim(fd: number, own: Uint8Array, addresses: readonly Ip[]): Claim | undefined {
  const frame = new Uint8Array(FRAME_LENGTH);
  const length = unless(["EAGAIN", "ENETDOWN"], () => sys.recv(fd, frame, frame.length, MSG_DONTWAIT));
  if (length !== FRAME_LENGTH || equal(frame.subarray(22, 28), own)) return undefined;
  const [sender, target] = [frame.subarray(28, 32), frame.subarray(38, 42)];
  // Whoever asks for an address in the name of nobody is about to take it.
  const claimed = equal(sender, NOBODY) && frame[21] === ARPOP_REQUEST ? target : sender;
  const address = addresses.find((each) => equal(ipBytes(each), claimed));
  return address && { address, mac: macFromBytes(frame.subarray(22, 28)) };
}

function equal(a: Uint8Array, b: Uint8Array): boolean {
  return a.every((byte, i) => byte === b[i]);
}

/** A question to everybody, in an Ethernet frame. @see RFC 826 */
function requestFrame(mac: Uint8Array, sender: Uint8Array, target: Uint8Array): Uint8Array {
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
