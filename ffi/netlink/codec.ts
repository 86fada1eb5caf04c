/**
 * The smallest pieces of a netlink message: numbers, strings, addresses and C structs, each with a way to write and a way to read it.
 *
 * Numbers are in host order, which is little-endian on both supported architectures; those that the kernel keeps in network order have
 * names that start with `be`. Reading past the end is a {@linkcode RangeError}.
 *
 * @module
 */
import { type Ip, ipBytes, ipFromBytes, type Mac, macBytes, macFromBytes } from "../address.ts";

/** How a value is laid out in bytes. `Out` is what reading gives; `In`, what writing takes. */
export interface Codec<Out, In = Out> {
  /** Number of bytes, where it is always the same. */
  readonly size?: number;
  /** True for a nest of attributes, whose header carries NLA_F_NESTED. */
  readonly nested?: boolean;
  write(writer: Writer, value: In): void;
  read(reader: Reader): Out;
  /** The names on the way to the attribute whose header starts at byte `offset`; used to explain the kernel's errors. */
  locate?(reader: Reader, offset: number): string[] | undefined;
}
/** A codec of any value. */
// deno-lint-ignore no-explicit-any -- a table of codecs holds values of every type; `unknown` would forbid writing them
export type AnyCodec = Codec<any, any>;
/** What reading with this codec gives. */
export type Out<C> = C extends Codec<infer O, infer _> ? O : never;
/** What writing with this codec takes. */
export type In<C> = C extends Codec<infer _, infer I> ? I : never;

/** A buffer that grows while it is written. */
export class Writer {
  bytes: Uint8Array<ArrayBuffer> = new Uint8Array(512);
  view: DataView<ArrayBuffer> = new DataView(this.bytes.buffer);
  length = 0;

  /** Makes room for `size` zero bytes and returns where they start. `view` may be another one after that. */
  reserve(size: number): number {
    const at = this.length;
    this.length += size;
    if (this.length > this.bytes.length) {
      const larger = new Uint8Array(Math.max(this.length, this.bytes.length * 2));
      larger.set(this.bytes.subarray(0, at));
      this.bytes = larger;
      this.view = new DataView(larger.buffer);
    }
    return at;
  }

  /** Pads with zeros to a multiple of four, as every message and attribute is. */
  align(): void {
    this.reserve(-this.length & 3);
  }

  append(bytes: Uint8Array): void {
    const at = this.reserve(bytes.length);
    this.bytes.set(bytes, at);
  }

  /** What has been written. */
  written(): Uint8Array<ArrayBuffer> {
    return this.bytes.subarray(0, this.length);
  }
}

/** A position in received bytes and the end up to which they may be read. */
export class Reader {
  readonly bytes: Uint8Array;
  readonly view: DataView;
  offset: number;
  end: number;

  constructor(bytes: Uint8Array, at = 0, end: number = bytes.length, view?: DataView) {
    this.bytes = bytes;
    this.view = view ?? new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.offset = at;
    this.end = end;
  }

  /** A reader of the bytes from `at` up to `end`. */
  slice(at: number, end: number): Reader {
    return new Reader(this.bytes, at, end, this.view);
  }

  /** Moves past `size` bytes and returns where they start. @throws {RangeError} if fewer are left */
  skip(size: number): number {
    const at = this.offset;
    if (at + size > this.end) throw new RangeError(`Cannot read ${size} bytes at ${at}: the value ends at ${this.end}`);
    this.offset = at + size;
    return at;
  }

  /** All bytes up to the end. */
  rest(): Uint8Array {
    const at = this.skip(Math.max(0, this.end - this.offset));
    return this.bytes.subarray(at, this.end);
  }
}

export const u8: Codec<number> = {
  size: 1,
  write(w, value) {
    const at = w.reserve(1);
    w.view.setUint8(at, value);
  },
  read: (r) => r.view.getUint8(r.skip(1)),
};
export const u16: Codec<number> = {
  size: 2,
  write(w, value) {
    const at = w.reserve(2);
    w.view.setUint16(at, value, true);
  },
  read: (r) => r.view.getUint16(r.skip(2), true),
};
export const u32: Codec<number> = {
  size: 4,
  write(w, value) {
    const at = w.reserve(4);
    w.view.setUint32(at, value, true);
  },
  read: (r) => r.view.getUint32(r.skip(4), true),
};
export const i32: Codec<number> = {
  size: 4,
  write(w, value) {
    const at = w.reserve(4);
    w.view.setInt32(at, value, true);
  },
  read: (r) => r.view.getInt32(r.skip(4), true),
};
export const be16: Codec<number> = {
  size: 2,
  write(w, value) {
    const at = w.reserve(2);
    w.view.setUint16(at, value);
  },
  read: (r) => r.view.getUint16(r.skip(2)),
};
export const be32: Codec<number> = {
  size: 4,
  write(w, value) {
    const at = w.reserve(4);
    w.view.setUint32(at, value);
  },
  read: (r) => r.view.getUint32(r.skip(4)),
};
/** A number of 32 bits in network order that may be negative, such as a hook's priority. */
export const bei32: Codec<number> = {
  size: 4,
  write(w, value) {
    const at = w.reserve(4);
    w.view.setInt32(at, value);
  },
  read: (r) => r.view.getInt32(r.skip(4)),
};
export const u64: Codec<bigint> = {
  size: 8,
  write(w, value) {
    const at = w.reserve(8);
    w.view.setBigUint64(at, value, true);
  },
  read: (r) => r.view.getBigUint64(r.skip(8), true),
};
export const be64: Codec<bigint> = {
  size: 8,
  write(w, value) {
    const at = w.reserve(8);
    w.view.setBigUint64(at, value);
  },
  read: (r) => r.view.getBigUint64(r.skip(8)),
};

/** Text in UTF-8 with a NUL behind it. */
export const cstr: Codec<string> = {
  write(w, value) {
    if (value.includes("\0")) throw new RangeError(`Cannot send ${JSON.stringify(value)}: it holds a NUL`);
    w.append(new TextEncoder().encode(`${value}\0`));
  },
  read(r) {
    const text = r.rest();
    const end = text.indexOf(0);
    return new TextDecoder().decode(end < 0 ? text : text.subarray(0, end));
  },
};

/** Bytes as they are; reading copies them out of the receive buffer. */
export const bytes: Codec<Uint8Array> = {
  write: (w, value) => w.append(value),
  read: (r) => r.rest().slice(),
};

/** An attribute without content: present is true. */
export const flag: Codec<true> = {
  write: () => {},
  read: () => true,
};

/** An IPv4 or IPv6 address; its length tells which. */
export const ipCodec: Codec<Ip> = {
  write: (w, value) => w.append(ipBytes(value)),
  read: (r) => ipFromBytes(r.rest()),
};

/** An Ethernet address; of another kind of link, whose address has 4, 16 or 20 bytes, nothing. */
export const macCodec: Codec<Mac | undefined, Mac> = {
  write: (w, value) => w.append(macBytes(value)),
  read(r) {
    const address = r.rest();
    return address.length === 6 ? macFromBytes(address) : undefined;
  },
};

/** The fields of a C struct, in order; `pad…` fields are not part of the value. */
export type Fields = Readonly<Record<string, Codec<number>>>;
type Named<F extends Fields> = Exclude<keyof F, `pad${string}`>;
/** A struct that was read: every field is there. */
export type StructOut<F extends Fields> = { readonly [K in Named<F>]: number };
/** A struct to write: a missing field is 0. */
export type StructIn<F extends Fields> = { readonly [K in Named<F>]?: number };
export type Struct<F extends Fields> = Codec<StructOut<F>, StructIn<F>> & { readonly size: number; readonly fields: F };

/** A C struct of numbers whose fields follow each other without gaps (declare gaps as `pad…`). */
export function struct<const F extends Fields>(fields: F): Struct<F> {
  return {
    fields,
    get size() {
      return Object.values(fields).reduce((sum, field) => sum + field.size!, 0);
    },
    write(w, value) {
      for (const name in fields) fields[name]!.write(w, (value as Record<string, number>)[name] ?? 0);
    },
    read(r) {
      const value: Record<string, number> = {};
      for (const name in fields) {
        const field = fields[name]!.read(r);
        if (!name.startsWith("pad")) value[name] = field;
      }
      return value as StructOut<F>;
    },
  };
}
