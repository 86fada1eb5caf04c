import { expect, test } from "bun:test";
import fc from "fast-check";
import { bitRate, bitSize } from "./units.ts";

for (
  const [text, bits] of [
    ["1bit", 1n],
    ["15Mbit", 15_000_000n],
    ["15mbit", 15_000_000n],
    ["15 Mbit", 15_000_000n],
    ["1.5Gbit", 1_500_000_000n],
    ["1.000000001Gbit", 1_000_000_001n],
    ["100Gbit", 100_000_000_000n],
    ["2Tbit", 2_000_000_000_000n],
    ["64KB", 512_000n],
    ["64kB", 512_000n],
    ["64KiB", 524_288n],
    ["2Mibit", 2_097_152n],
    ["0.5B", 4n],
    ["0bit", 0n],
    ["18446744073709551615bit", 2n ** 64n - 1n],
  ] as const
) {
  test(`"${text}" is ${bits} bits`, () => {
    expect([bitRate.parse(text), bitSize.parse(text)]).toEqual([bits, bits]);
    expect(bitRate.parse(`${text}/s`)).toBe(bits);
    expect(() => bitSize.parse(`${text}/s`, "egressBurst")).toThrow(
      "egressBurst must be a whole number of bits, or text",
    );
  });
}

const REFUSED = [
  "",
  "15",
  "15M",
  "15Mb",
  "15Mbps",
  "1mbps",
  "15 Mbit ",
  "15MBit",
  "15MBIT",
  "Mbit",
  ".5Mbit",
  "1.Mbit",
];
const ODD = ["-1bit", "+1bit", "1e3bit", "0x1bit", "0.5bit", "1.0001kbit", "1,5Mbit", "15Mbit/", "15Mbit/S", "1Pbit"];
for (const text of [...REFUSED, ...ODD, "15Mbit\n", "１Mbit", "9".repeat(21) + "bit"]) {
  test(`${JSON.stringify(text)} is refused`, () => {
    const reason = "must be a whole number of bits per second, or text such as";
    expect(() => bitRate.parse(text, "ingressRate")).toThrow(`Cannot use configuration: ingressRate ${reason}`);
  });
}

test("more than 64 bits hold is refused", () => {
  for (const text of ["18446744073709551616bit", "99999999999999999999TiB"]) {
    expect(() => bitRate.parse(text)).toThrow("a whole number from 0 to 2^64-1");
  }
});

test("numbers are bits", () => {
  fc.assert(fc.property(fc.maxSafeNat(), (bits) => {
    expect([bitRate.parse(bits), bitSize.parse(bits)]).toEqual([BigInt(bits), BigInt(bits)]);
    expect(bitRate.parse(`${bits}bit`)).toBe(BigInt(bits));
  }));
  expect(() => bitRate.parse(-1)).toThrow("a whole number from 0");
});
