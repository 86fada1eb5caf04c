/** What comes over the D-Bus socket, damaged in every way: an answer or one of our errors. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { checkProperty, outcomeOf } from "../../testing/fuzz.ts";
import { decodeMethodReply, encodeMethodCall, messageLength } from "./message.ts";
import { decodeSignal } from "./signal.ts";

const METHOD_RETURN = 2;
const SIGNAL = 4;

/** A method's answer or a signal in a few bytes: header fields REPLY_SERIAL, SENDER and SIGNATURE, and one text. */
function answer(type = METHOD_RETURN): Uint8Array {
  const call = encodeMethodCall(
    { destination: "a.b", path: "/a", interface: "a.b", member: "M", args: ["some text", "more"] },
    7,
  ).slice();
  call[1] = type;
  return call;
}

const DECODERS = [[METHOD_RETURN, decodeMethodReply], [SIGNAL, decodeSignal]] as const;

test.each(DECODERS)(
  "a message of type %d with any bytes changed, or cut anywhere, is read or refused",
  (type, decode) => {
    const whole = answer(type);
    expect(decodeMethodReply(answer())).toMatchObject({ value: "some text" });
    expect(decodeSignal(answer(SIGNAL))).toMatchObject({ member: "M", args: ["some text", "more"] });
    const EDGES = [0, 1, 2, 3, 4, 6, 7, 8, 0x73, 0x67, 0x75, 0x62, 0x7f, 0x80, 0xff];
    const change = fc.tuple(fc.nat(whole.length - 1), fc.oneof(fc.constantFrom(...EDGES), fc.nat(255)));
    checkProperty(
      fc.property(fc.array(change, { maxLength: 6 }), fc.integer({ min: 16, max: whole.length }), (changes, length) => {
        const bytes = whole.slice();
        for (const [at, value] of changes) bytes[at] = value;
        outcomeOf(() => messageLength(bytes.subarray(0, 16)));
        outcomeOf(() => decode(bytes));
        outcomeOf(() => decode(bytes.subarray(0, length)));
      }),
      3000,
    );
  },
);
