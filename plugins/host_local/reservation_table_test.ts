import { expect, test } from "bun:test";
import fc from "fast-check";
import { type Ip, ipBytes, ipFromBytes, nextIp, parseIp } from "../../ffi/address.ts";
import { RECORD_BYTES, ReservationTable } from "./reservation_table.ts";

// Blocks of 256, on both sides of the borders at which a search goes on.
const blocks = ["10.0.254.0", "10.0.255.0", "10.1.0.0", "fd00::", "fd00::100", "fd00::fe00", "fd00::ff00", "fd00::1:0"];
const address = fc.tuple(fc.constantFrom(...blocks), fc.nat(255)).map(([block, offset]) => {
  const bytes = ipBytes(parseIp(block));
  bytes[bytes.length - 1] = offset;
  return ipFromBytes(bytes);
});
const id = fc.constantFrom("a", "b", "c");
const change = fc.oneof(
  fc.record({ block: fc.constantFrom(...blocks), taken: fc.boolean(), id }),
  fc.record({ address, taken: fc.boolean(), id }),
);

test("a table agrees with a map of its addresses, also after it was written and read", () => {
  fc.assert(
    fc.property(
      fc.array(change, { maxLength: 20 }),
      fc.array(address, { minLength: 8, maxLength: 8 }),
      (changes, asked) => {
        const table = new ReservationTable();
        const model = new Map<Ip, string>();
        for (const { taken, id, ...what } of changes) {
          for (const each of "address" in what ? [what.address] : blockOf(what.block)) {
            if (taken && !model.has(each)) {
              table.add(each, { containerId: id, ifname: "eth0" }, 7);
              model.set(each, id);
            } else if (!taken) {
              table.remove(each);
              model.delete(each);
            }
          }
        }
        const copy = new ReservationTable(table.count, (bytes) => bytes.set(table.bytes()));
        for (const each of [table, copy]) {
          expect(each.count).toBe(model.size);
          for (const ip of asked) {
            expect(each.has(ip)).toBe(model.has(ip));
            expect(each.findFree(ip)).toBe(firstFree(model, ip));
          }
          for (const containerId of ["a", "b", "c"]) {
            const held = each.findByHolder({ containerId, ifname: "eth0" });
            const expected = [...model].filter(([, holder]) => holder === containerId).map(([ip]) => ip);
            expect(held.map(({ address }) => address).sort()).toEqual(expected.sort());
            expect(held.every(({ bootTag }) => bootTag === 7)).toBe(true);
          }
        }
      },
    ),
    { numRuns: 60 },
  );
});

test("a search ends with the family", () => {
  const table = new ReservationTable();
  table.add(parseIp("255.255.255.255"), undefined, 0);
  expect(table.findFree(parseIp("255.255.255.255"))).toBeUndefined();
  expect(table.findFree(parseIp("255.255.255.254"))).toBe(parseIp("255.255.255.254"));
});

test("a value that stands in another place of a record is not taken for what is looked for", () => {
  const table = new ReservationTable();
  // The boot tag is what another address ends with.
  const bytes = ipBytes(parseIp("10.0.0.9"));
  const tag = bytes[0]! | bytes[1]! << 8 | bytes[2]! << 16 | bytes[3]! << 24;
  table.add(parseIp("10.0.0.5"), { containerId: "a", ifname: "eth0" }, tag);
  expect(table.has(parseIp("10.0.0.9"))).toBe(false);
  expect(table.bytes()).toHaveLength(RECORD_BYTES);
});

test("a search passes 65,535 taken addresses", () => {
  const table = new ReservationTable();
  for (let i = 1; i < 65536; i++) table.add(ipFromBytes(new Uint8Array([10, 1, i >> 8, i & 255])), undefined, 0);
  expect(table.findFree(parseIp("10.1.0.2"))).toBe(parseIp("10.2.0.0"));
  table.remove(parseIp("10.1.200.9"));
  expect(table.findFree(parseIp("10.1.0.2"))).toBe(parseIp("10.1.200.9"));
  expect(table.findFree(parseIp("10.1.0.0"))).toBe(parseIp("10.1.0.0"));
});

test("a file that gets every change has the same records", () => {
  const table = new ReservationTable();
  const file = new Uint8Array(1000 * RECORD_BYTES);
  const ip = (i: number) => ipFromBytes(new Uint8Array([10, 1, i >> 8, i & 255]));
  const steps: [added: number, removed: number][] = [[1, 0], [3, 1], [0, 3], [300, 7], [2, 250], [0, 45]];
  let [first, end] = [0, 0];
  for (const [added, removed] of steps) {
    for (let i = 0; i < added; i++) table.add(ip(end++), { containerId: "a" }, 0);
    for (let i = 0; i < removed; i++) table.remove(ip(first++));
    for (const [offset, bytes] of table.takeChanges()) file.set(bytes, offset);
    expect(file.subarray(0, table.count * RECORD_BYTES)).toEqual(table.bytes());
    expect(table.takeChanges()).toEqual([]);
  }
});

function blockOf(first: string): Ip[] {
  const all = [parseIp(first)];
  while (all.length < 256) all.push(nextIp(all.at(-1)!)!);
  return all;
}

function firstFree(taken: ReadonlyMap<Ip, string>, from: Ip): Ip | undefined {
  let address: Ip | undefined = from;
  while (address !== undefined && taken.has(address)) address = nextIp(address);
  return address;
}
