/**
 * What nft(8) stores in objects: comments, and how to print keys. The kernel ignores it.
 *
 * The layout is of libnftnl (udata.h): type, length, value.
 */
import type { Codec, Reader, Writer } from "../netlink/codec.ts";

// Comment types depend on the object.
export const RULE_COMMENT = 0;
const ELEMENT_COMMENT = 0;
export const TABLE_COMMENT = 0;
export const CHAIN_COMMENT = 0;

/**
 * The kernel takes 256 bytes (NFT_USERDATA_MAXLEN). With an element, it refuses 255 and silently drops 256 (Linux
 * 6.18).
 * A comment takes two more bytes and a NUL. nft(8) reads back at most 127 bytes.
 */
export const COMMENT_MAX_BYTES = 251;

/** An absent comment is empty text. @throws {RangeError} if it is too long */
export function comment(type: number): Codec<string> {
  return {
    write: (w, text) => writeComment(w, type, text),
    read: (r) => decodeText(readTlvs(r)[type]),
  };
}

// A type that nft(8) ignores.
const ELEMENT_REFERENCES = 128;
const ELEMENT_USERDATA_MAX_BYTES = 254;

export interface ElementUserdata {
  readonly comment?: string;
  /** nft(8) neither prints this nor reads it back. */
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

export function elementReferencesRoom(comment: string): number {
  return ELEMENT_USERDATA_MAX_BYTES - 5 - new TextEncoder().encode(comment).length;
}

const SET_KEYBYTEORDER = 0;
const SET_COMMENT = 7;
/** @see nftables include/datatype.h enum byteorder */
export const BYTEORDER_HOST_ENDIAN = 1;

export interface SetUserdata {
  readonly comment?: string;
  /** Without it, nft(8) prints interface names as empty. */
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
