/**
 * What nft(8) keeps with objects: comments, and how to print keys. The kernel only stores these bytes.
 *
 * The layout is that of libnftnl (udata.h): type, length, value.
 */
import type { Codec, Reader, Writer } from "../netlink/codec.ts";

// The type of a comment depends on the object.
export const RULE_COMMENT = 0;
const ELEMENT_COMMENT = 0;
export const TABLE_COMMENT = 0;
export const CHAIN_COMMENT = 0;

/**
 * The kernel takes up to 256 bytes (NFT_USERDATA_MAXLEN), but 254 with an element: it refuses 255, and silently drops 256, whose length is
 * 0 in its byte (seen on Linux 6.18). A comment needs two bytes before it and a NUL. nft(8) reads back comments of up to 127 bytes.
 */
export const COMMENT_MAX_BYTES = 251;

/** A comment, or empty. @throws {RangeError} if it is too long */
export function comment(type: number): Codec<string> {
  return {
    write: (w, text) => writeComment(w, type, text),
    read: (r) => decodeText(readTlvs(r)[type]),
  };
}

/** A type that nft(8) ignores. */
const ELEMENT_REFERENCES = 128;
const ELEMENT_USERDATA_MAX_BYTES = 254;

export interface ElementUserdata {
  readonly comment?: string;
  /** Data about other elements; nft(8) neither prints it nor reads it back. */
  readonly references?: Uint8Array;
}

export const elementUserdata: Codec<ElementUserdata> = {
  write(w, { comment, references }) {
    if (comment !== undefined) writeComment(w, ELEMENT_COMMENT, comment);
    if (references !== undefined) writeTlv(w, ELEMENT_REFERENCES, references);
  },
  read(r) {
    const values = readTlvs(r);
    const references = values[ELEMENT_REFERENCES];
    return { comment: decodeText(values[ELEMENT_COMMENT]), ...references && { references: references.slice() } };
  },
};

/** How many bytes of references fit besides this comment. */
export function elementReferencesRoom(comment: string): number {
  return ELEMENT_USERDATA_MAX_BYTES - 5 - new TextEncoder().encode(comment).length;
}

const SET_KEYBYTEORDER = 0;
const SET_COMMENT = 7;
/** @see nftables include/datatype.h enum byteorder */
export const BYTEORDER_HOST_ENDIAN = 1;

export interface SetUserdata {
  readonly comment?: string;
  /** Without it, nft(8) prints empty interface names. */
  readonly keyByteOrder?: number;
}

export const setUserdata: Codec<SetUserdata> = {
  write(w, { comment, keyByteOrder }) {
    if (keyByteOrder !== undefined) {
      writeTlv(w, SET_KEYBYTEORDER, new Uint8Array(Uint32Array.of(keyByteOrder).buffer));
    }
    if (comment !== undefined) writeComment(w, SET_COMMENT, comment);
  },
  read(r) {
    const values = readTlvs(r);
    const byteOrder = values[SET_KEYBYTEORDER];
    const comment = values[SET_COMMENT];
    return {
      ...comment && { comment: decodeText(comment) },
      ...byteOrder?.length === 4 && { keyByteOrder: new DataView(byteOrder.slice().buffer).getUint32(0, true) },
    };
  },
};

function writeComment(w: Writer, type: number, text: string): void {
  const bytes = new TextEncoder().encode(`${text}\0`);
  if (bytes.length > COMMENT_MAX_BYTES + 1 || text.includes("\0")) {
    throw new RangeError(
      `Cannot keep comment ${JSON.stringify(text)}: it must have at most ${COMMENT_MAX_BYTES} bytes and no NUL`,
    );
  }
  writeTlv(w, type, bytes);
}

function writeTlv(w: Writer, type: number, value: Uint8Array): void {
  w.append(Uint8Array.of(type, value.length));
  w.append(value);
}

/** The values by type. @throws {RangeError} if one is cut short */
function readTlvs(r: Reader): readonly (Uint8Array | undefined)[] {
  const values: Uint8Array[] = [];
  while (r.end - r.offset >= 2) {
    const at = r.skip(2);
    const length = r.bytes[at + 1]!;
    const start = r.skip(length);
    values[r.bytes[at]!] = r.bytes.subarray(start, start + length);
  }
  return values;
}

function decodeText(value: Uint8Array = new Uint8Array()): string {
  const end = value.indexOf(0);
  return new TextDecoder().decode(end < 0 ? value : value.subarray(0, end));
}
