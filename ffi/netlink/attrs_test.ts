import { expect, test } from "bun:test";
import fc from "fast-check";
import { attrList, attrs, variant } from "./attrs.ts";
import { type Codec, cstr, Reader, struct, u16, u32, u64, u8, Writer } from "./codec.ts";

const inner = attrs(() => ({ id: [1, u16], name: [2, cstr] }));
const sample = attrs(() => ({
  number: [1, u32],
  text: [2, cstr],
  nest: [4, inner],
  several: [5, u8, "repeated"],
  items: [6, attrList(inner)],
  large: [7, u64],
  record: [8, struct({ a: u8, pad1: u8, b: u16 })],
  choice: [9, variant({ kind: 1, data: 2 }, () => ({ one: { x: [1, u32] }, two: { y: [1, cstr] } }))],
}));

function encode<I>(codec: Codec<unknown, I>, value: I): Uint8Array {
  const w = new Writer();
  codec.write(w, value);
  return w.written().slice();
}

test("attributes are written with header, content and padding", () => {
  expect(encode(sample, { number: 7, text: "ab" }).toHex()).toBe(
    "08000100" + "07000000" + // number = 7
      "07000200" + "616200" + "00", // text = "ab", NUL, padding
  );
  expect(encode(sample, { nest: { id: 5 } }).toHex()).toBe("0c000480" + "06000100" + "05000000");
});

const id = fc.integer({ min: 0, max: 0xffff });
const word = fc.string({ unit: fc.constantFrom("a", "é", "-", "0"), maxLength: 20 });
const innerValue = fc.record({ id, name: word }, { requiredKeys: [] });
const value = fc.record({
  number: fc.integer({ min: 0, max: 0xffff_ffff }),
  text: word,
  nest: innerValue,
  several: fc.array(fc.integer({ min: 0, max: 255 }), { minLength: 1, maxLength: 5 }),
  items: fc.array(innerValue, { maxLength: 4 }),
  large: fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }),
  record: fc.record({ a: fc.integer({ min: 0, max: 255 }), b: id }),
  choice: fc.oneof(
    fc.record({ kind: fc.constant("one" as const), x: fc.integer({ min: 0, max: 9 }) }),
    fc.record({ kind: fc.constant("two" as const), y: word }),
  ),
}, { requiredKeys: [] });

test("what is written is read back", () => {
  fc.assert(fc.property(value, (each) => {
    expect(sample.read(new Reader(encode(sample, each)))).toEqual(each);
  }));
});

test("nothing is read where the required attribute is missing", () => {
  const chosen = attrs(() => ({ name: [2, cstr], id: [1, u16] }), "id");
  const read = (value: { id?: number; name?: string }) => chosen.read(new Reader(encode(inner, value)));
  expect([read({ name: "a", id: 5 }), read({ name: "a" }), read({})]).toEqual([{ name: "a", id: 5 }, {}, {}]);
});

test("bytes of any kind give a value or a RangeError", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
      try {
        sample.read(new Reader(bytes));
      } catch (error) {
        expect(error).toBeInstanceOf(RangeError);
      }
    }),
    { numRuns: 2000 },
  );
});

test("unknown attributes are skipped, unknown variants keep their bytes", () => {
  const other = attrs(() => ({
    number: [1, u32],
    extra: [77, cstr],
    choice: [9, variant({ kind: 1, data: 2 }, () => ({ new: { z: [1, u8] } }))],
  }));
  const bytes = encode(other, { extra: "?", number: 3, choice: { kind: "new", z: 1 } });
  expect(sample.read(new Reader(bytes))).toEqual({
    number: 3,
    choice: { kind: "unknown", name: "new", raw: Uint8Array.fromHex("0500010001000000") },
  });
});

test("locate() names the attribute at an offset, through nests, lists and variants", () => {
  const bytes = encode(sample, {
    number: 1,
    nest: { id: 5, name: "x" },
    items: [{ id: 1 }, { id: 2 }],
    choice: { kind: "one", x: 1 },
  });
  const at = (offset: number) => sample.locate!(new Reader(bytes), offset)?.join(".");
  expect(at(0)).toBe("number");
  expect(at(8)).toBe("nest");
  expect(at(12)).toBe("nest.id");
  expect(at(20)).toBe("nest.name");
  const items = 28;
  expect(at(items)).toBe("items");
  expect(at(items + 4 + 12 + 4)).toBe("items.1.id");
  expect(at(bytes.length - 8)).toBe("choice.one.x");
  expect(at(bytes.length)).toBeUndefined();
});

test("a misspelled attribute and a NUL in a name are refused", () => {
  expect(() => encode(sample, { nmber: 1 } as object)).toThrow('Cannot send attribute "nmber"');
  expect(() => encode(sample, { text: "a\0b" })).toThrow("it holds a NUL");
});
