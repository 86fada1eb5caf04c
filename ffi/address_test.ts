import { expect, test } from "bun:test";
import fc from "fast-check";
import { Address4, Address6 } from "ip-address";
import * as address from "./address.ts";
import { type Cidr, parseCidr, parseIp, parseMac } from "./address.ts";

/** Any address as bytes, with zero bytes often enough for runs of zero groups and mapped addresses. */
const byte = fc.oneof({ weight: 2, arbitrary: fc.constantFrom(0, 0, 0, 1, 255) }, fc.nat(255));
const bytes4 = fc.array(byte, { minLength: 4, maxLength: 4 });
const bytes16 = fc.array(byte, { minLength: 16, maxLength: 16 });
const ipValue = fc.oneof(bytes4, bytes16).map((bytes) => address.ipFromBytes(Uint8Array.from(bytes)));
const cidrValue = fc.tuple(ipValue, fc.nat(128)).map(([ip, length]) =>
  address.toCidr(ip, address.familyOf(ip) === 4 ? length % 33 : length)
);
const oracle = (text: string) => text.includes(":") ? new Address6(text) : new Address4(text);

for (
  const [text, canonical] of [
    ["10.1.0.2", "10.1.0.2"],
    ["0.0.0.0", "0.0.0.0"],
    ["::", "::"],
    ["::1", "::1"],
    ["1::", "1::"],
    ["FD00:0:0::00:2", "fd00::2"],
    ["2001:0DB8:0:0:1:0:0:1", "2001:db8::1:0:0:1"],
    ["1:0:0:2:0:0:0:3", "1:0:0:2::3"],
    ["1:0:2:3:4:5:6:7", "1:0:2:3:4:5:6:7"],
    ["0:0:1:2:3:4:5:6", "::1:2:3:4:5:6"],
    ["1:2:3:4:5:6:0:0", "1:2:3:4:5:6::"],
    ["::ffff:192.0.2.7", "192.0.2.7"],
    ["0:0:0:0:0:FFFF:c000:0207", "192.0.2.7"],
    ["64:ff9b::192.0.2.7", "64:ff9b::c000:207"],
    ["1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304"],
  ]
) {
  test(`parseIp() reads ${text} as ${canonical}`, () => {
    expect<string>(parseIp(text)).toBe(canonical);
    expect(address.isIp(text)).toBe(true);
  });
}

for (
  const text of [
    ..."|1|1.2.3|1.2.3.4.5|1.2.3.|.1.2.3|1..2.3|256.1.1.1|1.2.3.1000|01.2.3.4|1.2.3.00|1.2.3.4 | 1.2.3.4|+1.2.3.4"
      .split("|"),
    ..."0x1.2.3.4|1.2.3.a|１.2.3.4|:|:::|1:|:1|1::2::3|12345::|1:2:3:4:5:6:7|1:2:3:4:5:6:7:8:9".split("|"),
    ..."1:2:3:4:5:6:7:8::|::1:2:3:4:5:6:7:8|1:2:3:4::5:6:7:8|g::|fe80::1%eth0|1::2 |::1.2.3|::01.2.3.4".split("|"),
    ..."1.2.3.4::|1:2:3:4:5:6:7:1.2.3.4|::1.2.3.4:5|::1.2.3.4.5|10.0.0.1/8|::1/64|::\n|1.2.3.4\0".split("|"),
  ]
) {
  test(`parseIp() refuses ${JSON.stringify(text)}`, () => {
    expect(() => parseIp(text)).toThrow(new SyntaxError(`Cannot parse IP address ${JSON.stringify(text)}: wrong form`));
    expect(address.isIp(text)).toBe(false);
  });
}

test("ipFromBytes() writes what another library writes", () => {
  fc.assert(fc.property(fc.oneof(bytes4, bytes16), (bytes) => {
    const ours = address.ipFromBytes(Uint8Array.from(bytes));
    if (bytes.length === 4) return expect<string>(ours).toBe(Address4.fromByteArray(bytes).correctForm());
    const theirs = Address6.fromUnsignedByteArray(bytes);
    expect<string>(ours).toBe(theirs.isMapped4() ? theirs.to4().correctForm() : theirs.correctForm());
  }));
});

test("ipBytes() and ipFromBytes() undo each other, and text is canonical", () => {
  fc.assert(fc.property(ipValue, (ip) => {
    expect(address.ipFromBytes(address.ipBytes(ip))).toBe(ip);
    expect(parseIp(ip)).toBe(ip);
    expect(address.ipBytes(ip).length).toBe(address.familyOf(ip) === 4 ? 4 : 16);
  }));
});

test("parseIp() accepts the long forms another library writes", () => {
  fc.assert(fc.property(bytes16, (bytes) => {
    const theirs = Address6.fromUnsignedByteArray(bytes);
    const ours = address.ipFromBytes(Uint8Array.from(bytes));
    expect(parseIp(theirs.canonicalForm())).toBe(ours);
    expect(parseIp(theirs.correctForm().toUpperCase())).toBe(ours);
  }));
});

test("isIp() agrees with another library on random text", () => {
  const piece = fc.constantFrom("0", "1", "25", "256", "ffff", "12345", "g", ".", ".", ":", ":", "::");
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 16 }), (pieces) => {
      const text = pieces.join("");
      const valid = text.includes(":") ? Address6.isValid(text) : Address4.isValid(text);
      expect([text, address.isIp(text)]).toEqual([text, valid]);
    }),
    { numRuns: 2000 },
  );
});

test("ipFromBytes() refuses other lengths", () => {
  expect(() => address.ipFromBytes(new Uint8Array(5))).toThrow(RangeError);
});

for (
  const [text, canonical] of [
    ["10.9.8.7/8", "10.9.8.7/8"],
    ["0.0.0.0/0", "0.0.0.0/0"],
    ["2001:DB8::1/64", "2001:db8::1/64"],
    ["::/0", "::/0"],
    ["::ffff:192.0.2.7/120", "192.0.2.7/24"],
    ["::ffff:0.0.0.0/96", "0.0.0.0/0"],
    ["::1/128", "::1/128"],
  ]
) {
  test(`parseCidr() reads ${text} as ${canonical}`, () => {
    expect<string>(parseCidr(text)).toBe(canonical);
  });
}

for (
  const text of [
    "",
    "10.1.0.0",
    "10.1.0.0/",
    "/8",
    "10.1.0.0/33",
    "10.1.0.0/-1",
    "10.1.0.0/08",
    "10.1.0.0/8 ",
    "10.1.0.0/8/8",
    "10.1.0.0/1e1",
    "192.0.2.07/24",
    "10.1.0.0/1000000000000000000000",
    "fe80::1%eth0/64",
    "::1/129",
    "::ffff:192.0.2.7/95",
  ]
) {
  test(`parseCidr() refuses ${JSON.stringify(text)}`, () => {
    expect(() => parseCidr(text)).toThrow(SyntaxError);
  });
}

test("cidr() takes apart and puts together", () => {
  fc.assert(fc.property(cidrValue, (value) => {
    expect(address.toCidr(address.ipOf(value), address.prefixLengthOf(value))).toBe(value);
    expect(parseCidr(value)).toBe(value);
  }));
  expect(() => address.toCidr(parseIp("10.0.0.1"), 33)).toThrow(RangeError);
  expect(() => address.toCidr(parseIp("10.0.0.1"), 1.5)).toThrow(RangeError);
});

test("networkOf() and broadcastOf() are the first and last address another library finds", () => {
  fc.assert(fc.property(cidrValue, (value) => {
    const theirs = oracle(value);
    expect<string>(address.ipOf(address.networkOf(value))).toBe(canonical(theirs.startAddress()));
    expect<string>(address.broadcastOf(value)).toBe(canonical(theirs.endAddress()));
  }));
});

test("contains() and overlaps() agree with the order of addresses", () => {
  fc.assert(fc.property(cidrValue, cidrValue, (a, b) => {
    const [first, last] = [address.ipOf(address.networkOf(a)), address.broadcastOf(a)];
    const ip = address.ipOf(b);
    const same = address.familyOf(a) === address.familyOf(b);
    const inside = same && address.compareIps(first, ip) <= 0 && address.compareIps(ip, last) <= 0;
    expect(address.containsIp(a, ip)).toBe(inside);
    const meets = address.containsIp(a, address.ipOf(address.networkOf(b))) || address.containsIp(b, first);
    expect(address.networksOverlap(a, b)).toBe(meets);
  }));
});

for (
  const [a, b, expected] of [
    ["10.0.0.0/8", "10.200.0.0/16", true],
    ["10.0.0.0/15", "10.2.0.0/16", false],
    ["0.0.0.0/0", "1.2.3.4/32", true],
    ["::/0", "0.0.0.0/0", false],
    ["fd00::/61", "fd00:0:0:7::1/64", true],
    ["fd00::/61", "fd00:0:0:8::1/64", false],
  ] as [Cidr, Cidr, boolean][]
) {
  test(`overlaps() of ${a} and ${b} is ${expected}`, () => {
    expect(address.networksOverlap(a, b)).toBe(expected);
    expect(address.containsIp(a, address.ipOf(b))).toBe(expected);
  });
}

test("nextIp() steps by one as another library counts", () => {
  fc.assert(fc.property(ipValue, (ip) => {
    const next = address.nextIp(ip);
    if (next === undefined) return;
    expect(oracle(next).bigInt()).toBe(oracle(ip).bigInt() + 1n);
    expect(address.compareIps(ip, next)).toBeLessThan(0);
    expect(address.previousIp(next)).toBe(ip);
  }));
});

for (
  const [ip, next] of [
    ["10.0.0.255", "10.0.1.0"],
    ["255.255.255.255", undefined],
    ["::ffff", "::1:0"],
    ["ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", undefined],
    ["::fffe:ffff:ffff", undefined], // what follows is 0.0.0.0, of the other family
  ]
) {
  test(`nextIp() of ${ip} is ${next}`, () => {
    expect<string | undefined>(address.nextIp(parseIp(ip!))).toBe(next);
    if (next) expect<string | undefined>(address.previousIp(parseIp(next))).toBe(ip);
  });
}

test("previousIp() is undefined before the first address", () => {
  expect(address.previousIp(parseIp("0.0.0.0"))).toBeUndefined();
  expect(address.previousIp(parseIp("::"))).toBeUndefined();
});

test("compareIps() sorts by value, IPv4 first", () => {
  const sorted = ["9.0.0.0", "10.0.0.2", "10.0.0.10", "::", "::1", "ff02::1"].map(parseIp);
  expect(sorted.toReversed().sort(address.compareIps)).toEqual(sorted);
});

for (const text of ["0a:58:0A:01:00:02", "0a-58-0a-01-00-02", "0a58.0a01.0002"]) {
  test(`parseMac() reads ${text}`, () => {
    expect<string>(parseMac(text)).toBe("0a:58:0a:01:00:02");
  });
}

for (
  const text of [
    "",
    "0a:58:0a:01:00",
    "0a:58:0a:01:00:02:03",
    "0a:58-0a:01:00:02",
    "a:58:0a:01:00:002",
    "0a58:0a01:0002",
    "0g:58:0a:01:00:02",
    "0a580a010002",
    " 0a:58:0a:01:00:02",
    "0a.58.0a.01.00.02",
  ]
) {
  test(`parseMac() refuses ${JSON.stringify(text)}`, () => {
    expect(() => parseMac(text)).toThrow(SyntaxError);
  });
}

test("macBytes() and macFromBytes() undo each other", () => {
  fc.assert(fc.property(fc.uint8Array({ minLength: 6, maxLength: 6 }), (bytes) => {
    const mac = address.macFromBytes(bytes);
    expect(mac).toMatch(/^([0-9a-f]{2}:){5}[0-9a-f]{2}$/);
    expect(address.macBytes(mac)).toEqual(bytes);
  }));
  expect(() => address.macFromBytes(new Uint8Array(8))).toThrow(RangeError);
});

/** Mapped addresses are IPv4 to us and IPv6 to the other library. */
function canonical(theirs: Address4 | Address6): string {
  return theirs instanceof Address6 && theirs.isMapped4() ? theirs.to4().correctForm() : theirs.correctForm();
}
