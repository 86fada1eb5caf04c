/**
 * Attributes: a message's body as a declared table, from which writing, reading, static types and the names in the kernel's errors all
 * follow.
 *
 * ```ts
 * const linkInfo = attrs({ kind: [IFLA_INFO_KIND, cstr], data: [IFLA_INFO_DATA, bytes] });
 * ```
 *
 * @see linux/netlink.h struct nlattr
 * @module
 */
import { type AnyCodec, bytes, type Codec, cstr, type In, type Out, Reader, type Writer } from "./codec.ts";

const NLA_F_NESTED = 0x8000;
const NLA_TYPE_MASK = 0x3fff;
const NLA_HDRLEN = 4;

/** One row of the table: the kernel's number and the layout of the content. It is plain data, since every call of the binary makes all rows. */
export type Attr<C extends AnyCodec> = readonly [type: number, codec: C];
/** A row whose attribute may be there several times; its value is an array. */
export type Many<C extends AnyCodec> = readonly [type: number, codec: C, many: "many"];
/** Attributes by the name that the value uses. */
export type AttrTable = Readonly<Record<string, Attr<AnyCodec> | Many<AnyCodec>>>;
/** What reading gives. Every attribute may be missing: that is netlink's truth. */
export type AttrsOut<T extends AttrTable> = {
  readonly [K in keyof T]?: T[K] extends Many<infer C> ? readonly Out<C>[] : Out<T[K][1]>;
};
/** What writing takes; attributes are sent in the order of the value's keys. */
export type AttrsIn<T extends AttrTable> = {
  readonly [K in keyof T]?: (T[K] extends Many<infer C> ? readonly In<C>[] : In<T[K][1]>) | undefined;
};
export type Attrs<T extends AttrTable> = Codec<AttrsOut<T>, AttrsIn<T>> & { readonly table: T };

/** A table of attributes. Attributes that it does not name are skipped when reading. */
export function attrs<const T extends AttrTable>(table: T): Attrs<T> {
  let names: Map<number, string> | undefined;
  const nameOf = (type: number) => {
    names ??= new Map(Object.keys(table).map((name) => [table[name]![0], name]));
    return names.get(type);
  };
  return {
    table,
    nested: true,
    write: (w, value) => writeTable(w, table, value),
    read: (r) => readTable(r, table, nameOf) as AttrsOut<T>,
    locate: (r, offset) => locate(r, offset, nameOf, (name) => table[name]![1]),
  };
}

function writeTable(w: Writer, table: AttrTable, value: Readonly<Record<string, unknown>>): void {
  for (const name in value) {
    const content = value[name];
    if (content === undefined) continue;
    const row = table[name];
    if (!row) throw new TypeError(`Cannot send attribute "${name}": the message has no such attribute`);
    const [type, codec, many] = row;
    for (const item of many ? content as readonly unknown[] : [content]) writeAttribute(w, type, codec, item);
  }
}

/** Writes one attribute: its header, its content and the padding behind it. */
function writeAttribute<I>(w: Writer, type: number, codec: Codec<unknown, I>, value: I): void {
  const at = w.reserve(NLA_HDRLEN);
  codec.write(w, value);
  const length = w.length - at;
  if (length > 0xffff) throw new RangeError(`Cannot send attribute ${type}: ${length} bytes are more than fit`);
  w.view.setUint16(at, length, true);
  w.view.setUint16(at + 2, type | (codec.nested ? NLA_F_NESTED : 0), true);
  w.align();
}

function readTable(r: Reader, table: AttrTable, nameOf: (type: number) => string | undefined): Record<string, unknown> {
  const value: Record<string, unknown> = {};
  for (const { type, content } of attributes(r)) {
    const name = nameOf(type);
    if (name === undefined) continue;
    const [, codec, many] = table[name]!;
    const item = codec.read(content);
    // What has no use for us is as good as absent.
    if (item === undefined) continue;
    if (many) ((value[name] ??= []) as unknown[]).push(item);
    else value[name] = item;
  }
  return value;
}

/** Walks over the attributes up to the reader's end. @throws {RangeError} if one claims more bytes than there are */
export function* attributes(r: Reader): Generator<{ type: number; start: number; content: Reader }> {
  while (r.end - r.at >= NLA_HDRLEN) {
    const start = r.take(NLA_HDRLEN);
    const length = r.view.getUint16(start, true);
    if (length < NLA_HDRLEN) throw new RangeError(`Cannot read the attribute at ${start}: its length is ${length}`);
    const at = r.take(length - NLA_HDRLEN);
    yield {
      type: r.view.getUint16(start + 2, true) & NLA_TYPE_MASK,
      start,
      content: new Reader(r.bytes, at, start + length),
    };
    r.at = Math.min(r.end, start + ((length + 3) & ~3));
  }
}

function locate(
  r: Reader,
  offset: number,
  nameOf: (type: number) => string | undefined,
  codecOf: (name: string) => AnyCodec,
) {
  for (const { type, start, content } of attributes(r)) {
    if (offset >= content.end) continue;
    const name = nameOf(type) ?? `attribute ${type}`;
    const codec = nameOf(type) === undefined ? undefined : codecOf(name);
    const inner = offset > start ? codec?.locate?.(content, offset) : undefined;
    return [name, ...inner ?? []];
  }
  return undefined;
}

/** A list whose elements all are attributes of one type (1, NFTA_LIST_ELEM, unless told). */
export function list<C extends AnyCodec>(item: C, type = 1): Codec<readonly Out<C>[], readonly In<C>[]> {
  return {
    nested: true,
    write(w, items) {
      for (const value of items) writeAttribute(w, type, item, value);
    },
    read(r) {
      const items: Out<C>[] = [];
      for (const { content } of attributes(r)) items.push(item.read(content) as Out<C>);
      return items;
    },
    locate(r, offset) {
      let index = 0;
      for (const { start, content } of attributes(r)) {
        if (offset < content.end) {
          return [String(index), ...(offset > start ? item.locate?.(content, offset) : undefined) ?? []];
        }
        index++;
      }
      return undefined;
    },
  };
}

/** The layouts of a variant, by the name that selects them. */
export type Variants = Readonly<Record<string, AttrTable>>;
/** A variant that the table does not name. */
export interface Unknown {
  readonly kind: "unknown";
  readonly name: string;
  readonly raw: Uint8Array;
}
export type VariantOut<V extends Variants> =
  | { [K in keyof V]: { readonly kind: K } & AttrsOut<V[K]> }[keyof V]
  | Unknown;
export type VariantIn<V extends Variants> = { [K in keyof V]: { readonly kind: K } & AttrsIn<V[K]> }[keyof V];

/** A nest with two attributes: a name, and data whose layout the name selects. The value is one flat object with that name as `kind`. */
export function variant<const V extends Variants>(
  ids: { readonly kind: number; readonly data: number },
  variants: V,
): Codec<VariantOut<V>, VariantIn<V>> {
  const layouts = new Map<string, Attrs<AttrTable>>();
  const layoutOf = (name: string): Attrs<AttrTable> | undefined => {
    if (!layouts.has(name) && Object.hasOwn(variants, name)) layouts.set(name, attrs(variants[name]!));
    return layouts.get(name);
  };
  return {
    nested: true,
    write(w, { kind, ...data }) {
      const layout = layoutOf(String(kind));
      if (!layout) throw new TypeError(`Cannot send "${String(kind)}": its layout is not known`);
      writeAttribute(w, ids.kind, cstr, String(kind));
      writeAttribute(w, ids.data, layout, data as AttrsIn<AttrTable>);
    },
    read(r) {
      const { name, data } = readVariant(r, ids);
      const layout = layoutOf(name);
      if (!layout) return { kind: "unknown", name, raw: data ? bytes.read(data) : new Uint8Array() };
      return { kind: name, ...data ? layout.read(data) : {} } as unknown as VariantOut<V>;
    },
    locate(r, offset) {
      const { name, data } = readVariant(r, ids);
      return [name, ...(data ? layoutOf(name)?.locate?.(data, offset) : undefined) ?? []];
    },
  };
}

function readVariant(
  r: Reader,
  ids: { readonly kind: number; readonly data: number },
): { name: string; data?: Reader } {
  const found: { name: string; data?: Reader } = { name: "" };
  for (const { type, content } of attributes(r)) {
    if (type === ids.kind) found.name = cstr.read(content);
    else if (type === ids.data) found.data = content;
  }
  return found;
}
