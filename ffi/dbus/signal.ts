/** Signals that hold text. No call of a plugin loads this. @module */
import { alignUp, FIXED_HEADER_BYTES, MEMBER_FIELD, readFields, SIGNATURE_FIELD, stringAt, u32At } from "./message.ts";

const SIGNAL = 4;
const SENDER_FIELD = 7;

export interface DbusSignal {
  readonly sender: string;
  readonly member: string;
  readonly args: readonly string[];
}

/** @throws {RangeError} if it is cut short */
export function decodeSignal(message: Uint8Array): DbusSignal | undefined {
  if (message[1] !== SIGNAL) return undefined;
  const fieldsEnd = FIXED_HEADER_BYTES + u32At(message, 12);
  const fields = readFields(message, fieldsEnd);
  const [texts = ""] = /^s*/.exec(String(fields.get(SIGNATURE_FIELD) ?? "")) ?? [];
  const args: string[] = [];
  let at = alignUp(fieldsEnd, 8);
  for (const _ of texts) {
    const length = u32At(message, at);
    args.push(stringAt(message, at + 4, length));
    at = alignUp(at + 4 + length + 1, 4);
  }
  return { sender: String(fields.get(SENDER_FIELD)), member: String(fields.get(MEMBER_FIELD)), args };
}
