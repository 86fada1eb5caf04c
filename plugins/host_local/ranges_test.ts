import { expect, test } from "bun:test";
import fc from "fast-check";
import { processorMs } from "../../testing/fuzz.ts";
import { ipFromBytes, parseIp } from "../../ffi/address.ts";
import { ConfigError } from "../../spec/error.ts";
import {
  capacityOf,
  findRangeOf,
  rangeIncludes,
  rangeOrSet,
  rangeSet,
  rangesOverlap,
  refuseRangeOverlaps,
} from "../lib/model/address_ranges.ts";

const set = (...ranges: object[]) => rangeSet.parse(ranges, "r");
const range = (subnet: string, rangeStart?: string, rangeEnd?: string, gateway?: string) =>
  set({ subnet, rangeStart, rangeEnd, gateway }).ranges[0]!;

for (
  const [subnet, start, end, gateway] of [
    ["192.0.2.0/24", "192.0.2.1", "192.0.2.254", "192.0.2.1"],
    ["192.0.2.0/25", "192.0.2.1", "192.0.2.126", "192.0.2.1"],
    ["192.0.2.4/30", "192.0.2.5", "192.0.2.6", "192.0.2.5"],
    ["0.0.0.0/0", "0.0.0.1", "255.255.255.254", "0.0.0.1"],
    ["2001:DB8:1::/64", "2001:db8:1::1", "2001:db8:1:0:ffff:ffff:ffff:ffff", "2001:db8:1::1"],
    ["fd00::4/126", "fd00::5", "fd00::7", "fd00::5"],
    // Values below 2^32, which are IPv6 addresses all the same.
    ["::1000:0/112", "::1000:1", "::1000:ffff", "::1000:1"],
  ]
) {
  test(`rangeSet fills in what ${subnet} leaves out`, () => {
    expect<object>(range(subnet)).toMatchObject({ start, end, gateway });
  });
}

test("rangeSet keeps what is given, the network's and the broadcast address included", () => {
  expect<object>(range("192.0.2.0/24", "192.0.2.0", "192.0.2.255", "198.51.100.9")).toEqual({
    subnet: "192.0.2.0/24",
    start: "192.0.2.0",
    end: "192.0.2.255",
    gateway: "198.51.100.9",
  });
});

for (
  const [fields, path, expected] of [
    [{}, "r[0].subnet", 'a CIDR such as "10.1.0.0/16"'],
    [{ subnet: "192.0.2.0/31" }, "r[0].subnet", "a network with room for containers, of prefix length 30 or less"],
    [{ subnet: "fd00::/127" }, "r[0].subnet", "a network with room for containers, of prefix length 126 or less"],
    [{ subnet: "192.0.2.12/24" }, "r[0].subnet", 'the address of a network, without host bits, such as "192.0.2.0/24"'],
    [{ subnet: "fd00::1/64" }, "r[0].subnet", 'the address of a network, without host bits, such as "fd00::/64"'],
    [{ subnet: "192.0.2.0/24", rangeStart: "192.0.3.0" }, "r[0].rangeStart", "an address in 192.0.2.0/24"],
    [{ subnet: "192.0.2.0/24", rangeStart: "fd00::1" }, "r[0].rangeStart", "an address in 192.0.2.0/24"],
    [{ subnet: "192.0.2.0/24", rangeEnd: "192.0.1.255" }, "r[0].rangeEnd", "an address in 192.0.2.0/24"],
    [
      { subnet: "192.0.2.0/24", rangeStart: "192.0.2.50", rangeEnd: "192.0.2.40" },
      "r[0].rangeStart",
      "an address in 192.0.2.0/24 that is not after 192.0.2.40",
    ],
    [
      { subnet: "192.0.2.0/24", rangeStart: "192.0.2.255" },
      "r[0].rangeStart",
      "an address in 192.0.2.0/24 that is not after 192.0.2.254",
    ],
    [{ subnet: "192.0.2.0/24", gateway: "192.0.2.0/24" }, "r[0].gateway", 'an IP address such as "10.1.0.2"'],
  ] as const
) {
  test(`rangeSet refuses ${JSON.stringify(fields)}`, () => {
    let error: unknown;
    try {
      set(fields);
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toBeInstanceOf(ConfigError);
    expect(error).toMatchObject({ path, expected });
  });
}

test("rangeSet refuses an empty set, mixed families and ranges that overlap", () => {
  expect(() => set()).toThrow("Cannot use configuration: r must be a list of at least one range: got []");
  expect(() => set({ subnet: "192.0.2.0/24" }, { subnet: "fd00::/64" })).toThrow(
    "r must be a list of ranges of one address family: got",
  );
  expect(() => set({ subnet: "192.0.2.0/24" }, { subnet: "198.51.100.0/24" }, { subnet: "192.0.2.128/25" })).toThrow(
    "r[2] must be apart from r[0], which is 192.0.2.1-192.0.2.254: got 192.0.2.129-192.0.2.254",
  );
});

test("rangeSet takes two parts of one subnet", () => {
  const parts = set({ subnet: "192.0.2.0/24", rangeEnd: "192.0.2.9" }, {
    subnet: "192.0.2.0/24",
    rangeStart: "192.0.2.10",
  });
  expect(findRangeOf(parts, parseIp("192.0.2.10"))).toBe(parts.ranges[1]!);
});

test("rangeOrSet takes one range where a list belongs, keys in any case", () => {
  const { ranges } = rangeOrSet.parse(
    { Subnet: "192.0.2.0/24", RangeStart: "192.0.2.9", RangeEnd: "", Gateway: "" },
    "r",
  );
  expect<object>(ranges).toEqual([
    { subnet: "192.0.2.0/24", start: "192.0.2.9", end: "192.0.2.254", gateway: "192.0.2.1" },
  ]);
});

test("rangeSet refuses some ranges just if two of them overlap, in whatever order they come", () => {
  const part = fc.tuple(fc.integer({ min: 1, max: 200 }), fc.integer({ min: 0, max: 12 }));
  fc.assert(fc.property(fc.array(part, { minLength: 1, maxLength: 8 }), (parts) => {
    const fields = parts.map(([start, more]) => ({
      ...{ subnet: "10.0.0.0/24", rangeStart: `10.0.0.${start}`, rangeEnd: `10.0.0.${start + more}` },
    }));
    const all = fields.map(({ subnet, rangeStart, rangeEnd }) => range(subnet, rangeStart, rangeEnd));
    const some = all.some((a, i) => all.slice(i + 1).some((b) => rangesOverlap(a, b)));
    if (some) expect(() => set(...fields)).toThrow("must be apart from");
    else expect(set(...fields).ranges).toHaveLength(parts.length);
  }));
});

test("rangeSet and refuseRangeOverlaps() take 20,000 ranges in a moment", () => {
  const fields = Array.from({ length: 20_000 }, (_, i) => ({ subnet: `10.${i >> 8}.${i & 255}.0/24` }));
  const started = processorMs();
  refuseRangeOverlaps([set(...fields), set({ subnet: "fd00::/64" })]);
  // Compared pair by pair it was more than a minute.
  expect(processorMs() - started).toBeLessThan(10_000);
});

test("refuseRangeOverlaps() names both sets", () => {
  const a = rangeSet.parse([{ subnet: "192.0.2.0/24" }], "ipam.ranges[0]");
  const b = rangeSet.parse([{ subnet: "fd00::/64" }], "ipam.ranges[1]");
  const c = rangeSet.parse([{ subnet: "198.51.100.0/24" }, { subnet: "192.0.0.0/16" }], "ipam.ranges[2]");
  refuseRangeOverlaps([a, b]);
  expect(() => refuseRangeOverlaps([a, b, c])).toThrow(
    "ipam.ranges[2] must be apart from ipam.ranges[0], which is 192.0.2.1",
  );
});

for (
  const [a, b, wanted] of [
    [range("10.0.0.0/24"), range("10.0.0.0/24"), true],
    [range("10.0.0.0/16"), range("10.0.7.0/24"), true],
    [range("10.0.0.0/24"), range("10.0.1.0/24"), false],
    [range("10.0.0.0/24", "10.0.0.1", "10.0.0.9"), range("10.0.0.0/24", "10.0.0.9"), true],
    [range("10.0.0.0/24", "10.0.0.1", "10.0.0.9"), range("10.0.0.0/24", "10.0.0.10"), false],
    [range("10.0.0.0/8"), range("::a00:0/104"), false],
  ] as const
) {
  test(`overlap() of ${a.start}-${a.end} and ${b.start}-${b.end} is ${wanted}, both ways`, () => {
    expect([rangesOverlap(a, b), rangesOverlap(b, a)]).toEqual([wanted, wanted]);
  });
}

test("includes() keeps to the range and the family", () => {
  const six = range("2001:db8:1::/64", "2001:db8:1::40", "2001:db8:1::50");
  const inside = (text: string) => rangeIncludes(six, parseIp(text));
  expect([inside("2001:db8:1::3f"), inside("2001:db8:1::40"), inside("2001:db8:1::50"), inside("2001:db8:1::51")])
    .toEqual([false, true, true, false]);
  expect(rangeIncludes(range("0.0.0.0/0"), parseIp("::1"))).toBe(false);
});

test("capacityOf() counts without walking, the gateway left out where it is inside", () => {
  expect(capacityOf(set({ subnet: "192.0.2.0/24" }, { subnet: "198.51.100.0/30", gateway: "192.0.2.1" }))).toBe(255n);
  expect(capacityOf(set({ subnet: "fd00::/64" }))).toBe(2n ** 64n - 2n);
});

test("capacityOf() agrees with counting", () => {
  const network = fc.tuple(fc.integer({ min: 0, max: 0xffff }), fc.integer({ min: 24, max: 30 }));
  fc.assert(fc.property(network, ([net, length]) => {
    const [first] = rangeSet.parse([{ subnet: `10.${net >> 8}.${net & 255}.0/${length}` }], "").ranges;
    let count = 0n;
    for (let host = 0; host < 256; host++) {
      const ip = ipFromBytes(new Uint8Array([10, net >> 8, net & 255, host]));
      if (rangeIncludes(first!, ip) && ip !== first!.gateway) count++;
    }
    return capacityOf({ path: "", ranges: [first!] }) === count;
  }));
});
