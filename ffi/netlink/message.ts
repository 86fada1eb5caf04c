/** Messages: a header and attributes, as one flat value. @see linux/netlink.h @module */
import { type Attrs, attrs, type AttrsIn, type AttrsOut, type AttrTable } from "./attrs.ts";
import { type Fields, Reader, type Struct, type StructIn, type StructOut, type Writer } from "./codec.ts";

// sizeof(struct nlmsghdr)
export const NLMSG_HDRLEN = 16;

export const NLMSG_ERROR = 2;
export const NLMSG_DONE = 3;

// The upper bits mean different things in GET, NEW and acknowledgements.
export const NLM_F_REQUEST = 0x1;
export const NLM_F_MULTI = 0x2;
export const NLM_F_ACK = 0x4;
export const NLM_F_ECHO = 0x8;
export const NLM_F_DUMP_INTR = 0x10;
export const NLM_F_DUMP = 0x300;
export const NLM_F_REPLACE = 0x100;
export const NLM_F_EXCL = 0x200;
export const NLM_F_CREATE = 0x400;
export const NLM_F_APPEND = 0x800;
export const NLM_F_CAPPED = 0x100;
export const NLM_F_ACK_TLVS = 0x200;

export interface MessageSpec<H extends Fields, T extends AttrTable> {
  readonly name: string;
  readonly header: Struct<H>;
  readonly attributes: Attrs<T>;
}
// deno-lint-ignore no-explicit-any -- a socket carries messages of every layout
export type AnyMessageSpec = MessageSpec<any, any>;
export type MessageOut<S> = S extends MessageSpec<infer H, infer T> ? StructOut<H> & AttrsOut<T> : never;
export type MessageIn<S> = S extends MessageSpec<infer H, infer T> ? StructIn<H> & AttrsIn<T> : never;

export interface Operation<S extends AnyMessageSpec = AnyMessageSpec> {
  readonly name: string;
  readonly type: number;
  readonly spec: S;
}

/** @param required see {@linkcode attrs} */
export function message<const H extends Fields, const T extends AttrTable>(
  name: string,
  header: Struct<H>,
  declare: () => T,
  required?: string & keyof T,
): MessageSpec<H, T> {
  return { name, header, attributes: attrs(declare, required) };
}

export function writeMessage<S extends AnyMessageSpec>(
  w: Writer,
  op: Operation<S>,
  value: MessageIn<S>,
  flags: number,
  sequence: number,
): void {
  const start = w.reserve(NLMSG_HDRLEN);
  writePayload(w, op.spec, value);
  w.view.setUint32(start, w.length - start, true);
  w.view.setUint16(start + 4, op.type, true);
  w.view.setUint16(start + 6, flags, true);
  w.view.setUint32(start + 8, sequence, true);
}

export function writePayload<S extends AnyMessageSpec>(w: Writer, spec: S, value: MessageIn<S>): void {
  spec.header.write(w, value as StructIn<Fields>);
  w.align();
  spec.attributes.write(w, withoutHeader(spec, value as Record<string, unknown>));
}

function withoutHeader(spec: AnyMessageSpec, value: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const rest: Record<string, unknown> = {};
  for (const name in value) if (!(name in spec.header.fields)) rest[name] = value[name];
  return rest;
}

export function readMessage<S extends AnyMessageSpec>(spec: S, payload: Reader): MessageOut<S> {
  const header = spec.header.read(payload);
  payload.offset = Math.min(payload.end, (payload.offset + 3) & ~3);
  return { ...spec.attributes.read(payload), ...header } as MessageOut<S>;
}

/** Finds `info.data.id`, whose header is at `offset`. */
export function attributePath(spec: AnyMessageSpec, request: Uint8Array, offset: number): string | undefined {
  const reader = new Reader(request, NLMSG_HDRLEN + ((spec.header.size + 3) & ~3));
  return spec.attributes.locate?.(reader, offset)?.join(".");
}
