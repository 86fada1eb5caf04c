/**
 * The D-Bus messages of calls with text and numbers. @see https://dbus.freedesktop.org/doc/dbus-specification.html#message-protocol
 * @module
 */

export interface MethodCall {
  readonly destination: string;
  readonly path: string;
  readonly interface: string;
  readonly member: string;
  readonly args: readonly (string | number)[];
  /** In the place of `args`, for other types: see marshal.ts. */
  readonly body?: { readonly signature: string; readonly bytes: readonly number[] };
}

export interface MethodReply {
  readonly replySerial: number;
  readonly error?: string;
  readonly value?: string | boolean;
}

const METHOD_CALL = 1;
const METHOD_RETURN = 2;
const ERROR = 3;
const PROTOCOL_VERSION = 1;
const PATH = 1;
const INTERFACE = 2;
export const MEMBER_FIELD = 3;
const ERROR_NAME = 4;
const REPLY_SERIAL = 5;
const DESTINATION = 6;
export const SIGNATURE_FIELD = 8;
const LITTLE_ENDIAN = "l".charCodeAt(0);
/** Includes the length of the fields that follow. */
export const FIXED_HEADER_BYTES = 16;

export const alignUp = (at: number, alignment: number): number => Math.ceil(at / alignment) * alignment;

export class Marshaller {
  readonly bytes: number[] = [];

  byte(...values: number[]): void {
    this.bytes.push(...values);
  }
  align(to: number): void {
    while (this.bytes.length % to !== 0) this.bytes.push(0);
  }
  u32(value: number): void {
    this.align(4);
    this.byte(value & 0xff, value >>> 8 & 0xff, value >>> 16 & 0xff, value >>> 24);
  }
  string(text: string): void {
    const bytes = new TextEncoder().encode(text);
    this.u32(bytes.length);
    this.byte(...bytes, 0);
  }
  signature(text: string): void {
    const bytes = new TextEncoder().encode(text);
    this.byte(bytes.length, ...bytes, 0);
  }
}

export function encodeMethodCall(call: MethodCall, serial: number): Uint8Array {
  const { signature, bytes } = call.body ?? marshalArguments(call.args);
  const fields = new Marshaller();
  const textFields = [
    [PATH, "o", call.path],
    [INTERFACE, "s", call.interface],
    [MEMBER_FIELD, "s", call.member],
    [DESTINATION, "s", call.destination],
  ] as const;
  for (const [code, type, value] of textFields) {
    fields.align(8);
    fields.byte(code);
    fields.signature(type);
    fields.string(value);
  }
  if (signature !== "") {
    fields.align(8);
    fields.byte(SIGNATURE_FIELD);
    fields.signature("g");
    fields.signature(signature);
  }
  const message = new Marshaller();
  message.byte(LITTLE_ENDIAN, METHOD_CALL, 0, PROTOCOL_VERSION);
  message.u32(bytes.length);
  message.u32(serial);
  message.u32(fields.bytes.length);
  message.byte(...fields.bytes);
  message.align(8);
  message.byte(...bytes);
  return Uint8Array.from(message.bytes);
}

function marshalArguments(args: MethodCall["args"]): NonNullable<MethodCall["body"]> {
  const body = new Marshaller();
  for (const arg of args) typeof arg === "string" ? body.string(arg) : body.u32(arg);
  return { signature: args.map((arg) => typeof arg === "string" ? "s" : "i").join(""), bytes: body.bytes };
}

const viewOf = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.length);

/** @throws {RangeError} if it cannot be read */
export function messageLength(start: Uint8Array): number {
  // The sender chooses the byte order: on one machine, the same.
  if (start[0] !== LITTLE_ENDIAN) throw new RangeError("Cannot read a D-Bus message: it is not little-endian");
  const view = viewOf(start);
  return alignUp(FIXED_HEADER_BYTES + view.getUint32(12, true), 8) + view.getUint32(4, true);
}

/** @throws {RangeError} if it is cut short */
export function decodeMethodReply(message: Uint8Array): MethodReply | undefined {
  if (message[1] !== METHOD_RETURN && message[1] !== ERROR) return undefined;
  const fieldsEnd = FIXED_HEADER_BYTES + u32At(message, 12);
  const fields = readFields(message, fieldsEnd);
  const value = readFirstArgument(message, alignUp(fieldsEnd, 8), String(fields.get(SIGNATURE_FIELD) ?? ""));
  const error = fields.get(ERROR_NAME);
  return {
    replySerial: Number(fields.get(REPLY_SERIAL)),
    ...message[1] === ERROR && { error: String(error) },
    ...value !== undefined && { value },
  };
}

/** Each field is a code, a signature of one type, and the value. */
export function readFields(message: Uint8Array, end: number): Map<number, string | number> {
  const fields = new Map<number, string | number>();
  for (let at = FIXED_HEADER_BYTES; at < end;) {
    at = alignUp(at, 8);
    const code = message[at]!;
    const type = String.fromCharCode(message[at + 2]!);
    at += 4;
    if (type === "g") {
      const length = message[at]!;
      fields.set(code, stringAt(message, at + 1, length));
      at += length + 2;
      continue;
    }
    at = alignUp(at, 4);
    const value = u32At(message, at);
    at += 4;
    if (type === "u") fields.set(code, value);
    else {
      fields.set(code, stringAt(message, at, value));
      at += value + 1;
    }
  }
  return fields;
}

function readFirstArgument(message: Uint8Array, at: number, signature: string): string | boolean | undefined {
  if (!/^[sb]/.test(signature)) return undefined;
  const number = u32At(message, at);
  return signature[0] === "b" ? number !== 0 : stringAt(message, at + 4, number);
}

export function u32At(message: Uint8Array, at: number): number {
  requireBytes(message, at, 4);
  return viewOf(message).getUint32(at, true);
}

function requireBytes(message: Uint8Array, at: number, length: number): void {
  // NaN, from a length past the end, fails too.
  if (!(at + length <= message.length)) throw new RangeError("Cannot read a D-Bus message: it is cut short");
}

export function stringAt(message: Uint8Array, at: number, length: number): string {
  requireBytes(message, at, length);
  return new TextDecoder().decode(message.subarray(at, at + length));
}
