/** One buffer for all netlink sockets: answers are read before the next request. @module */
import { EMSGSIZE } from "../sys/errno.ts";
import { ignoreErrors, SystemError } from "../sys/error.ts";
import { sys } from "../sys/libc.ts";
import { type MessageVector, newMessageVector } from "../sys/msghdr.ts";
import { MSG_DONTWAIT } from "../sys/uapi.ts";

const MSG_TRUNC = 0x20;

// Untouched pages cost nothing.
const PARTS = 8;
// A link with all VLANs takes 36 KiB.
const PART_BYTES = 64 * 1024;

let buffer = new Uint8Array(0);
let vector: MessageVector | undefined;
let receiver = -1;

export const bufferedSocketFd = (): number => receiver;

/** Does not wait. @throws {SystemError} `EMSGSIZE` for one too large; the next of its size fits */
export function receiveDatagrams(fd: number, expected: number): Uint8Array[] {
  if (buffer.length === 0) resizeBuffer(PARTS * PART_BYTES);
  receiver = fd;
  return ignoreErrors(["EAGAIN"], () => expected > 1 ? receiveSeveral(fd, expected) : [receiveOne(fd)]) ?? [];
}

function resizeBuffer(length: number): void {
  // The vector holds its address, so it must not move, see newMessageVector().
  buffer = new Uint8Array(new ArrayBuffer(length));
  vector = undefined;
}

function receiveOne(fd: number): Uint8Array {
  const length = sys.recv(fd, buffer, buffer.length, MSG_TRUNC | MSG_DONTWAIT);
  return receivedPart(0, buffer.length, length);
}

function receiveSeveral(fd: number, expected: number): Uint8Array[] {
  const { headers, lengthOf } = vector ??= newMessageVector(buffer, PARTS);
  const count = sys.recvmmsg(fd, headers, Math.min(PARTS, expected), MSG_TRUNC | MSG_DONTWAIT, null);
  const room = buffer.length / PARTS;
  return Array.from({ length: count }, (_, index) => receivedPart(index * room, room, lengthOf(index)));
}

function receivedPart(start: number, room: number, length: number): Uint8Array {
  if (length <= room) return buffer.subarray(start, start + length);
  resizeBuffer(length * (buffer.length / room));
  throw new SystemError("recv", EMSGSIZE, "receive an answer of the kernel");
}
