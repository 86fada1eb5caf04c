import { expect, test } from "bun:test";
import * as fc from "fast-check";
import { checkProperty } from "../../testing/fuzz.ts";
import { splitLines } from "./line_splitter.ts";
import { ListSplitter } from "./list_splitter.ts";

const encoder = new TextEncoder();

/** Cuts a text into pieces of these sizes, in turn. */
function cut(text: string, sizes: readonly number[]): Uint8Array[] {
  const bytes = encoder.encode(text);
  const pieces: Uint8Array[] = [];
  for (let at = 0, turn = 0; at < bytes.length; turn++) {
    const end = at + sizes[turn % sizes.length]!;
    pieces.push(bytes.slice(at, end));
    at = end;
  }
  return pieces;
}

function split(text: string, sizes: readonly number[] = [text.length + 1]): { items: unknown[]; envelope: unknown } {
  const items: unknown[] = [];
  const splitter = new ListSplitter((item) => items.push(item));
  for (const piece of cut(text, sizes)) splitter.push(piece);
  return { items, envelope: splitter.end() };
}

const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 5 });

test("a list has its items and the rest, whatever they hold and wherever it is cut", () => {
  const object = fc.dictionary(
    fc.oneof(fc.string({ unit: "binary" }), fc.constant("items")),
    fc.jsonValue({ maxDepth: 2 }),
    { maxKeys: 3 },
  );
  const list = fc.record({
    before: object,
    items: fc.array(object, { maxLength: 4 }),
    after: object,
    indent: fc.integer({ min: 0, max: 2 }),
    sizes,
  });
  checkProperty(
    fc.property(list, ({ before, items, after, indent, sizes }) => {
      // In another object or a string, the word means nothing.
      const rest = { kind: 'NodeList "items":[', metadata: { before, items: [1, [{}], after] } };
      const text = JSON.stringify({ ...rest, items, after: [after] }, null, indent);
      expect(split(text, sizes)).toEqual(
        JSON.parse(JSON.stringify({ items, envelope: { ...rest, items: [], after: [after] } })),
      );
    }),
    60,
  );
});

test("a list that ends early, or is none, is an error at each place", () => {
  const text = JSON.stringify({ kind: "NodeList", items: [{ a: [1, "]}"] }, { b: {} }], metadata: {} });
  for (let length = 0; length < text.length; length++) {
    expect(() => split(text.slice(0, length))).toThrow(SyntaxError);
  }
  for (
    const other of [
      "<html>",
      "[]}",
      '{"items":[1]}',
      '{"items":[[]]}',
      '{"items":[{]}',
      '{"items":[{"a":]}]}',
      `${text}]`,
    ]
  ) {
    expect(() => split(other)).toThrow(SyntaxError);
  }
  expect(split('{"items":null}')).toEqual({ items: [], envelope: { items: null } });
});

test("an object that does not end is an error before it fills the memory", () => {
  const splitter = new ListSplitter(() => {});
  splitter.push(encoder.encode('{"items":[{"a":"'));
  const piece = new Uint8Array(1024 * 1024).fill(0x20);
  expect(() => {
    for (let count = 0; count < 17; count++) splitter.push(piece);
  }).toThrow(new SyntaxError("it has more than 16777216 bytes"));
});

test("lines are those of the text, wherever it is cut, without a last one that is not complete", async () => {
  const lines = fc.array(fc.string({ unit: "binary" }).map((text) => text.replaceAll("\n", "")));
  await fc.assert(
    fc.asyncProperty(lines, sizes, async (lines, sizes) => {
      async function* pieces() {
        yield* cut(lines.map((line) => `${line}\n`).join("") + "rest", sizes);
      }
      expect(await Array.fromAsync(splitLines(pieces()))).toEqual(lines.map((line) => line.toWellFormed()));
    }),
    { numRuns: 200 },
  );
});
