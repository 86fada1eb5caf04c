import { ignoreErrors, withPurpose } from "../sys/error.ts";
import { type Descriptor, descriptor } from "../sys/file.ts";
import { newSockFprog, sys } from "../sys/libc.ts";
import { AF_PACKET, ETH_P_IP, IPPROTO_UDP, MSG_DONTWAIT, SOCK_CLOEXEC, SOCK_RAW, SOL_SOCKET } from "../sys/uapi.ts";

const SO_ATTACH_FILTER = 26;
// The filter's offsets begin with the Ethernet header.
const NETWORK_AT = 14;
// More than an Ethernet frame.
const MAX_FRAME_BYTES = 2048;

export interface PacketSocket extends Descriptor {
  /** A link that is down or has a full queue loses the frame: false. */
  send(frame: Uint8Array): boolean;
  /** Returns `undefined` if there is none. @throws {SystemError} `ENETDOWN` once after the link went down */
  receive(): Uint8Array | undefined;
}

export interface UdpFilter {
  readonly destinationPort: number;
  readonly word: { readonly offset: number; readonly value: number };
}

// Words of struct sock_filter { u16 code; u8 jt; u8 jf; u32 k; }, linux/filter.h
function filterProgram({ destinationPort, word }: UdpFilter): number[] {
  const LOAD_HALF = 0x28;
  const LOAD_BYTE = 0x30;
  const LOAD_HEADER_LENGTH = 0xb1;
  const LOAD_HALF_BEHIND = 0x48;
  const LOAD_WORD_BEHIND = 0x40;
  const JUMP_IF_EQUAL = 0x15;
  const JUMP_IF_SET = 0x45;
  const RETURN = 0x06;
  const FRAGMENT_BITS = 0x3fff;
  const steps = [
    [LOAD_HALF, 12],
    [JUMP_IF_EQUAL, ETH_P_IP],
    [LOAD_BYTE, NETWORK_AT + 9],
    [JUMP_IF_EQUAL, IPPROTO_UDP],
    [LOAD_HALF, NETWORK_AT + 6],
    [JUMP_IF_SET, FRAGMENT_BITS],
    [LOAD_HEADER_LENGTH, NETWORK_AT],
    [LOAD_HALF_BEHIND, NETWORK_AT + 2],
    [JUMP_IF_EQUAL, destinationPort],
    [LOAD_WORD_BEHIND, NETWORK_AT + 8 + word.offset],
    [JUMP_IF_EQUAL, word.value],
    [RETURN, MAX_FRAME_BYTES],
    [RETURN, 0],
  ] as const;
  const reject = steps.length - 1;
  return steps.flatMap(([code, k], at) => {
    const distance = reject - at - 1;
    // The third byte counts instructions to skip if true, the fourth if false.
    let jump = 0;
    if (code === JUMP_IF_EQUAL) jump = distance << 24;
    if (code === JUMP_IF_SET) jump = distance << 16;
    return [code | jump, k];
  });
}

/**
 * The socket stays in the thread's namespace.
 *
 * @param filter without it, the socket only sends
 * @throws {SystemError} `ENODEV` if there is no such link, `EPERM` without CAP_NET_RAW
 */
export function openPacketSocket(index: number, filter?: UdpFilter): PacketSocket {
  // Without a protocol, it receives nothing before it has its filter.
  const socket = descriptor(
    withPurpose("open packet socket", () => sys.socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)),
  );
  try {
    if (filter) {
      const { memory } = newSockFprog(filterProgram(filter));
      const FILTER_BYTES = 16;
      sys.setsockopt(socket.fd, SOL_SOCKET, SO_ATTACH_FILTER, memory, FILTER_BYTES);
    }
    const protocol = filter ? htons(ETH_P_IP) : 0;
    // struct sockaddr_ll { u16 family; be16 protocol; s32 ifindex; u16 hatype; u8 pkttype; u8 halen; u8 addr[8]; }
    const address = new Uint32Array([AF_PACKET | protocol << 16, index, 0, 0, 0]);
    withPurpose(`bind a packet socket to link ${index}`, () => sys.bind(socket.fd, address, 20));
  } catch (error) {
    socket[Symbol.dispose]();
    throw error;
  }
  return {
    ...socket,
    send: (frame) =>
      ignoreErrors(
        ["ENOBUFS", "ENETDOWN", "EAGAIN", "ENXIO"],
        () => sys.send(socket.fd, frame, frame.length, MSG_DONTWAIT),
      ) !== undefined,
    receive() {
      const frame = new Uint8Array(MAX_FRAME_BYTES);
      const length = ignoreErrors(["EAGAIN"], () => sys.recv(socket.fd, frame, frame.length, MSG_DONTWAIT));
      return length === undefined ? undefined : frame.subarray(0, length);
    },
  };
}

const htons = (value: number): number => (value & 0xff) << 8 | value >> 8;
