/** Messages for sendmsg(2), recvmsg(2) and recvmmsg(2), apart from libc.ts: short calls need none. @module */
import { addressOf, putPointer } from "./libc.ts";
import { SOL_SOCKET } from "./uapi.ts";

/** Its memory refers to that of `payload`, which must live as long. */
function newMessageHeader(payload: Uint8Array, controlWords: number): { header: Uint32Array; control: Uint32Array } {
  const vectorAt = 14;
  const controlAt = 18;
  // On an explicit buffer: a small array's memory moves when its buffer is made later.
  const header = new Uint32Array(new ArrayBuffer((controlAt + controlWords) * 4));
  const address = addressOf(header);
  putPointer(header, 4, address + vectorAt * 4);
  header[6] = 1;
  putPointer(header, vectorAt, addressOf(payload));
  header[vectorAt + 2] = payload.length;
  putPointer(header, 8, address + controlAt * 4);
  header[10] = controlWords * 4;
  return { header, control: header.subarray(controlAt) };
}

// struct cmsghdr { size_t cmsg_len; int cmsg_level, cmsg_type; }
const CMSGHDR_BYTES = 16;
const SCM_RIGHTS = 1;

const rightsWords = (count: number): number => CMSGHDR_BYTES / 4 + count + (count & 1);

export function scmRightsMessage(fds: readonly number[], payload: Uint8Array): Uint32Array {
  const { header, control } = newMessageHeader(payload, rightsWords(fds.length));
  control.set([CMSGHDR_BYTES + fds.length * 4, 0, SOL_SOCKET, SCM_RIGHTS, ...fds]);
  return header;
}

export interface ReceivedMessage {
  readonly header: Uint32Array;
  fds(): number[];
}

/** `buffer` must live as long as the message. */
export function newReceivedMessage(buffer: Uint8Array, maxFds: number): ReceivedMessage {
  const { header, control } = newMessageHeader(buffer, rightsWords(maxFds));
  return {
    header,
    fds() {
      const received = header[10]! >= CMSGHDR_BYTES && control[3] === SCM_RIGHTS;
      return received ? [...control.subarray(CMSGHDR_BYTES / 4, control[0]! / 4)] : [];
    },
  };
}

export interface MessageVector {
  readonly headers: Uint32Array;
  lengthOf(index: number): number;
}

/** Divides `buffer`, which must live as long, into equal parts. */
export function newMessageVector(buffer: Uint8Array, count: number): MessageVector {
  const headerWords = 16;
  const vectorWords = 4;
  const vectorAt = 4;
  const vectorCountAt = 6;
  const lengthAt = 14;
  const headers = new Uint32Array(new ArrayBuffer(count * (headerWords + vectorWords) * 4));
  const headersAddress = addressOf(headers);
  const bufferAddress = addressOf(buffer);
  const partBytes = Math.floor(buffer.length / count);
  for (let index = 0; index < count; index++) {
    const header = index * headerWords;
    const vector = count * headerWords + index * vectorWords;
    putPointer(headers, header + vectorAt, headersAddress + vector * 4);
    headers[header + vectorCountAt] = 1;
    putPointer(headers, vector, bufferAddress + index * partBytes);
    headers[vector + 2] = partBytes;
  }
  return { headers, lengthOf: (index) => headers[index * headerWords + lengthAt]! };
}
