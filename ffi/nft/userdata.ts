/**
 * What nft(8) keeps with objects for its own use: comments, and how to print the keys of a set.
 *
 * The kernel stores these bytes and never looks at them; the layout is that of libnftnl (udata.h): type, length, value.
 *
 * @module
 */
import type { Codec } from "../netlink/codec.ts";

// The number of a comment depends on the object that it belongs to.
export const RULE_COMMENT = 0;
export const ELEMENT_COMMENT = 0;
export const TABLE_COMMENT = 0;
export const CHAIN_COMMENT = 0;
export const SET_COMMENT = 7;

/**
 * The kernel takes up to 256 bytes of such data (NFT_USERDATA_MAXLEN), but of an element 254: it refuses 255 and, 256 being 0 in the byte
 * where it keeps the length, drops 256 without a word (seen on Linux 6.18). A comment has two bytes before it and a NUL behind it.
 *
 * nft(8) prints them all, but reads no comment of more than 127 bytes.
 */
export const COMMENT_MAX_BYTES = 251;

/** A comment, and nothing else; without one in the data the value is empty. @throws {RangeError} if it is too long */
export function comment(type: number): Codec<string> {
  return {
    write(w, text) {
      const bytes = new TextEncoder().encode(text);
      if (bytes.length > COMMENT_MAX_BYTES || bytes.includes(0)) {
        throw new RangeError(
          `Cannot keep comment ${JSON.stringify(text)}: it must have at most ${COMMENT_MAX_BYTES} bytes and no NUL`,
        );
      }
      w.append(Uint8Array.of(type, bytes.length + 1, ...bytes, 0));
    },
    read(r) {
      while (r.end - r.at >= 2) {
        const at = r.take(2);
        const length = r.bytes[at + 1]!;
        const start = r.take(length);
        if (r.bytes[at] !== type) continue;
        const text = r.bytes.subarray(start, start + length);
        const end = text.indexOf(0);
        return new TextDecoder().decode(end < 0 ? text : text.subarray(0, end));
      }
      return "";
    },
  };
}
