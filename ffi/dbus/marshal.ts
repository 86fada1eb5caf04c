/** Arguments of any type. No call of a plugin loads this. @module */
import { Marshaller, type MethodCall } from "./message.ts";

/** That of a variant is a pair: its signature, and a value of that. Structures are arrays. */
export type DbusValue = string | number | bigint | boolean | readonly DbusValue[];

/** @param signature as in the specification: `sa(sv)` */
export function marshal(signature: string, values: readonly DbusValue[]): NonNullable<MethodCall["body"]> {
  const body = new Marshaller();
  putAll(body, signature, values);
  return { signature, bytes: body.bytes };
}

function putAll(to: Marshaller, signature: string, values: readonly DbusValue[]): void {
  let rest = signature;
  for (const value of values) {
    const type = firstType(rest);
    put(to, type, value);
    rest = rest.slice(type.length);
  }
}

function firstType(signature: string): string {
  if (signature[0] === "a") return `a${firstType(signature.slice(1))}`;
  let depth = 0;
  let length = 0;
  do {
    if (signature[length] === "(") depth++;
    if (signature[length] === ")") depth--;
    length++;
  } while (depth > 0);
  return signature.slice(0, length);
}

function put(to: Marshaller, type: string, value: DbusValue): void {
  switch (type[0]) {
    case "s":
      return to.string(value as string);
    case "t": {
      to.align(8);
      to.u32(Number((value as bigint) & 0xffff_ffffn));
      return to.u32(Number((value as bigint) >> 32n));
    }
    case "v": {
      const [signature, content] = value as readonly [string, DbusValue];
      to.signature(signature);
      return put(to, signature, content);
    }
    case "(":
      to.align(8);
      return putAll(to, type.slice(1, -1), value as readonly DbusValue[]);
    case "a":
      return putArray(to, type.slice(1), value as readonly DbusValue[]);
    default:
      // b, i and u have four bytes.
      return to.u32(Number(value));
  }
}

/** Its length does not count the bytes before the first element. */
function putArray(to: Marshaller, type: string, values: readonly DbusValue[]): void {
  to.u32(0);
  const lengthAt = to.bytes.length - 4;
  if ("t(".includes(type[0]!)) to.align(8);
  const start = to.bytes.length;
  for (const value of values) put(to, type, value);
  const length = new Marshaller();
  length.u32(to.bytes.length - start);
  to.bytes.splice(lengthAt, 4, ...length.bytes);
}
