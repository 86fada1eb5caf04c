/**
 * Attributes, declared as a table. Writer, reader, types and names in errors follow from it.
 *
 * ```ts
 * const linkInfo = attrs(() => ({ kind: [IFLA_INFO_KIND, cstr], data: [IFLA_INFO_DATA, bytes] }));
 * ```
 *
 * Tables are made on first use: every call of the binary declares all and uses few.
 *
 * @see linux/netlink.h struct nlattr
 * @module
 */
import { type AnyCodec, bytes, type Codec, cstr, type In, type Out, type Reader, type Writer } from "./codec.ts";

const NLA_F_NESTED = 0x8000;
const NLA_TYPE_MASK = 0x3fff;
const NLA_HDRLEN = 4;

export type Attr<C extends AnyCodec> = readonly [type: number, codec: C];
export type RepeatedAttr<C extends AnyCodec> = readonly [type: number, codec: C, repeated: "repeated"];
export type AttrTable = Readonly<Record<string, Attr<AnyCodec> | RepeatedAttr<AnyCodec>>>;
export type AttrsOut<T extends AttrTable> = {
  readonly [K in keyof T]?: T[K] extends RepeatedAttr<infer C> ? readonly Out<C>[] : Out<T[K][1]>;
};
/** Sent in the order of the value's keys. */
export type AttrsIn<T extends AttrTable> = {
  readonly [K in keyof T]?: (T[K] extends RepeatedAttr<infer C> ? readonly In<C>[] : In<T[K][1]>) | undefined;
};
export type Attrs<T extends AttrTable> = Codec<AttrsOut<T>, AttrsIn<T>> & { readonly table: T };

/**
 * Reading skips attributes that are not in the table.
 *
 * @param required without this attribute, none is read: few of many messages are decoded
 */
export function attrs<const T extends AttrTable>(declare: () => T, required?: string & keyof T): Attrs<T> {
  let table: T | undefined;
  let names: readonly string[] | undefined;
  const rows = () => table ??= declare();
  return {
    get table() {
      return rows();
    },
    nested: true,
    write: (w, value) => writeTable(w, rows(), value),
    read(r) {
      const isRead = required === undefined || hasAttribute(r, rows()[required]![0]);
      return (isRead ? readTable(r, rows(), names ??= namesOf(rows())) : {}) as AttrsOut<T>;
    },
    locate: (r, offset) => locateAttribute(r, offset, rows(), names ??= namesOf(rows())),
  };
}

function namesOf(table: AttrTable): readonly string[] {
  const names: string[] = [];
  for (const name in table) names[table[name]![0]] = name;
  return names;
}

function writeTable(w: Writer, table: AttrTable, value: Readonly<Record<string, unknown>>): void {
  for (const name in value) {
    const content = value[name];
    if (content === undefined) continue;
    const row = table[name];
    if (!row) throw new TypeError(`Cannot send attribute "${name}": the message has no such attribute`);
    const [type, codec, repeated] = row;
    for (const item of repeated ? content as readonly unknown[] : [content]) writeAttribute(w, type, codec, item);
  }
}

function writeAttribute<I>(w: Writer, type: number, codec: Codec<unknown, I>, value: I): void {
  const at = w.reserve(NLA_HDRLEN);
  codec.write(w, value);
  const length = w.length - at;
  if (length > 0xffff) throw new RangeError(`Cannot send attribute ${type}: ${length} bytes are more than fit`);
  w.view.setUint16(at, length, true);
  w.view.setUint16(at + 2, type | (codec.nested ? NLA_F_NESTED : 0), true);
  w.align();
}

function readTable(r: Reader, table: AttrTable, names: readonly string[]): Record<string, unknown> {
  const value: Record<string, unknown> = {};
  for (let at = nextAttribute(r); at >= 0; at = nextAttribute(r)) {
    const name = names[attributeTypeAt(r, at)];
    if (name === undefined) continue;
    const [, codec, repeated] = table[name]!;
    const item = codec.read(contentAt(r, at));
    if (item === undefined) continue;
    if (repeated) ((value[name] ??= []) as unknown[]).push(item);
    else value[name] = item;
  }
  return value;
}

function hasAttribute(r: Reader, type: number): boolean {
  const start = r.offset;
  let at = nextAttribute(r);
  while (at >= 0 && attributeTypeAt(r, at) !== type) at = nextAttribute(r);
  r.offset = start;
  return at >= 0;
}

/**
 * Returns where the attribute's header starts, -1 at the end. An iterator would be slow.
 *
 * @throws {RangeError} if it is longer than the rest
 */
function nextAttribute(r: Reader): number {
  const at = r.offset;
  if (r.end - at < NLA_HDRLEN) return -1;
  const length = r.view.getUint16(at, true);
  if (length < NLA_HDRLEN) throw new RangeError(`Cannot read the attribute at ${at}: its length is ${length}`);
  r.skip(length);
  r.offset = Math.min(r.end, at + ((length + 3) & ~3));
  return at;
}

const attributeTypeAt = (r: Reader, at: number): number => r.view.getUint16(at + 2, true) & NLA_TYPE_MASK;

function contentAt(r: Reader, at: number): Reader {
  return r.slice(at + NLA_HDRLEN, at + r.view.getUint16(at, true));
}

function locateAttribute(r: Reader, offset: number, table: AttrTable, names: readonly string[]): string[] | undefined {
  for (let at = nextAttribute(r); at >= 0; at = nextAttribute(r)) {
    const content = contentAt(r, at);
    if (offset >= content.end) continue;
    const name = names[attributeTypeAt(r, at)];
    if (name === undefined) return [`attribute ${attributeTypeAt(r, at)}`];
    return [name, ...(offset > at ? table[name]![1].locate?.(content, offset) : undefined) ?? []];
  }
  return undefined;
}

export function attrList<C extends AnyCodec>(item: C, type = 1): Codec<readonly Out<C>[], readonly In<C>[]> {
  return {
    nested: true,
    write(w, items) {
      for (const value of items) writeAttribute(w, type, item, value);
    },
    read(r) {
      const items: Out<C>[] = [];
      for (let at = nextAttribute(r); at >= 0; at = nextAttribute(r)) items.push(item.read(contentAt(r, at)) as Out<C>);
      return items;
    },
    locate(r, offset) {
      for (let at = nextAttribute(r), index = 0; at >= 0; at = nextAttribute(r), index++) {
        const content = contentAt(r, at);
        if (offset < content.end) {
          return [String(index), ...(offset > at ? item.locate?.(content, offset) : undefined) ?? []];
        }
      }
      return undefined;
    },
  };
}

export type Variants = Readonly<Record<string, AttrTable>>;
export interface UnknownVariant {
  readonly kind: "unknown";
  readonly name: string;
  readonly raw: Uint8Array;
}
export type VariantOut<V extends Variants> =
  | { [K in keyof V]: { readonly kind: K } & AttrsOut<V[K]> }[keyof V]
  | UnknownVariant;
export type VariantIn<V extends Variants> = { [K in keyof V]: { readonly kind: K } & AttrsIn<V[K]> }[keyof V];

/** A nest of a name and data, whose layout the name selects. The value is flat, with the name as `kind`. */
export function variant<const V extends Variants>(
  ids: { readonly kind: number; readonly data: number },
  declare: () => V,
): Codec<VariantOut<V>, VariantIn<V>> {
  let variants: V | undefined;
  let layouts: Map<string, Attrs<AttrTable>> | undefined;
  const layoutOf = (name: string): Attrs<AttrTable> | undefined => {
    const variantTables = variants ??= declare();
    layouts ??= new Map();
    if (!layouts.has(name) && Object.hasOwn(variantTables, name)) layouts.set(name, attrs(() => variantTables[name]!));
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
  const result: { name: string; data?: Reader } = { name: "" };
  for (let at = nextAttribute(r); at >= 0; at = nextAttribute(r)) {
    const type = attributeTypeAt(r, at);
    if (type === ids.kind) result.name = cstr.read(contentAt(r, at));
    else if (type === ids.data) result.data = contentAt(r, at);
  }
  return result;
}
