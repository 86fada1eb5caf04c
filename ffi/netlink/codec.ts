/**
 * Readers and writers for the parts of a netlink message.
 *
 * Numbers are little-endian, as both architectures; `be…` ones are in network order.
 *
 * @module
 */
import { type Ip, ipBytes, ipFromBytes, type Mac, macBytes, macFromBytes } from "../address.ts";

export interface Codec<Out, In = Out> {
  readonly size?: number;
  /** A nest of attributes has NLA_F_NESTED in its header. */
  readonly nested?: boolean;
  write(writer: Writer, value: In): void;
  read(reader: Reader): Out;
  /** The path of the attribute whose header starts at `offset`, for the kernel's errors. */
  locate?(reader: Reader, offset: number): string[] | undefined;
}
// deno-lint-ignore no-explicit-any -- a table holds codecs of every type; `unknown` forbids writing them
export type AnyCodec = Codec<any, any>;
export type Out<C> = C extends Codec<infer O, infer _> ? O : never;
export type In<C> = C extends Codec<infer _, infer I> ? I : never;

export class Writer {
  bytes: Uint8Array<ArrayBuffer> = new Uint8Array(512);
  view: DataView<ArrayBuffer> = new DataView(this.bytes.buffer);
  length = 0;

  /** Appends `size` zero bytes and returns where they start. May replace `view`. */
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

  align(): void {
    this.reserve(-this.length & 3);
  }

  append(bytes: Uint8Array): void {
    const at = this.reserve(bytes.length);
    this.bytes.set(bytes, at);
  }

  written(): Uint8Array<ArrayBuffer> {
    return this.bytes.subarray(0, this.length);
  }
}

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

  slice(at: number, end: number): Reader {
    return new Reader(this.bytes, at, end, this.view);
  }

  skip(size: number): number {
    const at = this.offset;
    if (at + size > this.end) throw new RangeError(`Cannot read ${size} bytes at ${at}: the value ends at ${this.end}`);
    this.offset = at + size;
    return at;
  }

  rest(): Uint8Array {
    const at = this.skip(Math.max(0, this.end - this.offset));
    return this.bytes.subarray(at, this.end);
  }
}

function fixed<T>(
  size: number,
  get: (view: DataView, at: number) => T,
  set: (view: DataView, at: number, value: T) => void,
): Codec<T> {
  return {
    size,
    write(w, value) {
      // First, since it may replace the view.
      const at = w.reserve(size);
      set(w.view, at, value);
    },
    read: (r) => get(r.view, r.skip(size)),
  };
}

export const u8 = fixed(1, (view, at) => view.getUint8(at), (view, at, value) => view.setUint8(at, value));
export const u16 = fixed(
  2,
  (view, at) => view.getUint16(at, true),
  (view, at, value) => view.setUint16(at, value, true),
);
export const u32 = fixed(
  4,
  (view, at) => view.getUint32(at, true),
  (view, at, value) => view.setUint32(at, value, true),
);
export const i32 = fixed(4, (view, at) => view.getInt32(at, true), (view, at, value) => view.setInt32(at, value, true));
export const be16 = fixed(2, (view, at) => view.getUint16(at), (view, at, value) => view.setUint16(at, value));
export const be32 = fixed(4, (view, at) => view.getUint32(at), (view, at, value) => view.setUint32(at, value));
export const bei32 = fixed(4, (view, at) => view.getInt32(at), (view, at, value) => view.setInt32(at, value));
export const u64 = fixed(
  8,
  (view, at) => view.getBigUint64(at, true),
  (view, at, value) => view.setBigUint64(at, value, true),
);
export const be64 = fixed(8, (view, at) => view.getBigUint64(at), (view, at, value) => view.setBigUint64(at, value));

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

/** Reading copies from the receive buffer. */
export const bytes: Codec<Uint8Array> = {
  write: (w, value) => w.append(value),
  read: (r) => r.rest().slice(),
};

export const ipCodec: Codec<Ip> = {
  write: (w, value) => w.append(ipBytes(value)),
  read: (r) => ipFromBytes(r.rest()),
};

/** Ethernet only: others, of 4, 16 or 20 bytes, are read as `undefined`. */
export const macCodec: Codec<Mac | undefined, Mac> = {
  write: (w, value) => w.append(macBytes(value)),
  read(r) {
    const address = r.rest();
    return address.length === 6 ? macFromBytes(address) : undefined;
  },
};

/** The order is that of a C struct. The value has no `pad…` fields. */
export type Fields = Readonly<Record<string, Codec<number>>>;
type Named<F extends Fields> = Exclude<keyof F, `pad${string}`>;
export type StructOut<F extends Fields> = { readonly [K in Named<F>]: number };
export type StructIn<F extends Fields> = { readonly [K in Named<F>]?: number };
export type Struct<F extends Fields> = Codec<StructOut<F>, StructIn<F>> & { readonly size: number; readonly fields: F };

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
