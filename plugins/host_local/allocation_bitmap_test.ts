import { expect, test } from "bun:test";
import fc from "fast-check";
import { type Ip, ipBytes, ipFromBytes, nextIp, parseIp } from "../../ffi/address.ts";
import { addSlot, findSlots, type HashTable, PAGE_WORDS, pageCountFor, removeSlot } from "./paged_hash_table.ts";
import {
  findNextFree,
  groupByNode,
  isAllocated,
  NODE_SLOT_WORDS,
  setAllocated,
  setGroupAllocated,
} from "./allocation_bitmap.ts";

function newTable(count: number, slotWords: number, reach = Infinity): HashTable {
  const all = Array.from({ length: count }, () => new Uint32Array(PAGE_WORDS));
  return { pages: { load: (number) => all[number]!, markDirty() {} }, first: 0, count, slotWords, maxProbes: reach };
}

test("a table finds what was added and not removed, also where pages are full", () => {
  const key = fc.record({ low: fc.constantFrom(0, 1, 2 ** 31, 2 ** 32 - 1), high: fc.constantFrom(0, 7) });
  fc.assert(
    fc.property(fc.array(fc.record({ key, isAdd: fc.boolean() }), { minLength: 50, maxLength: 200 }), (steps) => {
      // 15 slots a page.
      const table = newTable(20, 64);
      const model = new Map<string, number[]>();
      for (const [i, { key, isAdd }] of steps.entries()) {
        const values = model.get(`${key.low} ${key.high}`) ?? [];
        model.set(`${key.low} ${key.high}`, values);
        if (isAdd) {
          addSlot(table, key).words[2] = i;
          values.push(i);
        } else if (values.length > 0) {
          const value = values.shift();
          removeSlot(table, findSlots(table, key).find(({ words }) => words[2] === value)!);
        }
        for (const [name, wanted] of model) {
          const [low, high] = name.split(" ").map(Number) as [number, number];
          const found = findSlots(table, { low, high }).map(({ words }) => words[2]!);
          expect(found.sort((a, b) => a - b)).toEqual(wanted);
        }
      }
    }),
    { numRuns: 20 },
  );
});

test("a table says when there is no room within reach", () => {
  const table = newTable(9, 512, 2);
  const key = { low: 0, high: 0 };
  addSlot(table, key);
  addSlot(table, key);
  expect(() => addSlot(table, key)).toThrow(expect.objectContaining({ code: "ENOSPC" }));
  expect(findSlots(table, key)).toHaveLength(2);
});

// Blocks of 256 that are full all but for a few, on both sides of the borders between nodes.
const blocks = ["10.0.254.0", "10.0.255.0", "10.1.0.0", "fd00::", "fd00::100", "fd00::fe00", "fd00::ff00", "fd00::1:0"];
const address = fc.tuple(fc.constantFrom(...blocks), fc.nat(255)).map(([block, offset]) => {
  const bytes = ipBytes(parseIp(block));
  bytes[bytes.length - 1] = offset;
  return ipFromBytes(bytes);
});
const change = fc.oneof(
  fc.record({ block: fc.constantFrom(...blocks), taken: fc.boolean() }),
  fc.record({ address, taken: fc.boolean() }),
);

test("the tree of taken addresses agrees with a set of them", () => {
  fc.assert(
    fc.property(
      fc.array(change, { maxLength: 20 }),
      fc.array(address, { minLength: 8, maxLength: 8 }),
      (changes, asked) => {
        const table = newTable(4, NODE_SLOT_WORDS);
        const model = new Set<Ip>();
        for (const { taken, ...what } of changes) {
          const all = "address" in what ? [what.address] : blockOf(what.block);
          for (const each of all) {
            setAllocated(table, ipBytes(each), taken);
            if (taken) model.add(each);
            else model.delete(each);
          }
        }
        const bulk = newTable(pageCountFor(8, NODE_SLOT_WORDS), NODE_SLOT_WORDS);
        for (const group of groupByNode([...model].map(ipBytes))) setGroupAllocated(bulk, group);
        for (const each of asked) {
          for (const tree of [table, bulk]) {
            expect(isAllocated(tree, ipBytes(each))).toBe(model.has(each));
            const free = findNextFree(tree, ipBytes(each));
            expect(free && ipFromBytes(free)).toBe(firstFree(model, each));
          }
        }
      },
    ),
    { numRuns: 60 },
  );
});

test("the tree of taken addresses ends with the family", () => {
  const table = newTable(2, NODE_SLOT_WORDS);
  setAllocated(table, ipBytes(parseIp("255.255.255.255")), true);
  expect(findNextFree(table, ipBytes(parseIp("255.255.255.255")))).toBeUndefined();
  expect(findNextFree(table, ipBytes(parseIp("255.255.255.254")))).toEqual(ipBytes(parseIp("255.255.255.254")));
});

test("a search passes 65,536 taken addresses within a dozen pages", () => {
  const table = newTable(pageCountFor(257, NODE_SLOT_WORDS), NODE_SLOT_WORDS);
  let loads = 0;
  const counting = {
    ...table,
    pages: { ...table.pages, load: (number: number) => (loads++, table.pages.load(number)) },
  };
  for (let i = 0; i < 65536; i++) setAllocated(table, new Uint8Array([10, 1, i >> 8, i & 255]), true);
  expect(findNextFree(counting, new Uint8Array([10, 1, 0, 2]))).toEqual(new Uint8Array([10, 2, 0, 0]));
  expect(loads).toBeLessThan(12);
  setAllocated(table, new Uint8Array([10, 1, 200, 9]), false);
  expect(findNextFree(table, new Uint8Array([10, 1, 0, 2]))).toEqual(new Uint8Array([10, 1, 200, 9]));
});

function blockOf(first: string): Ip[] {
  const all = [parseIp(first)];
  while (all.length < 256) all.push(nextIp(all.at(-1)!)!);
  return all;
}

function firstFree(taken: ReadonlySet<Ip>, from: Ip): Ip | undefined {
  let address: Ip | undefined = from;
  while (address !== undefined && taken.has(address)) address = nextIp(address);
  return address;
}
