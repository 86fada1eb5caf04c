import { expect, test } from "bun:test";
import { parseIp } from "../ffi/address.ts";
import { SeenAddresses } from "./seen_addresses.ts";

test("it has what was added, and hardly anything else", () => {
  const seen = new SeenAddresses();
  const address = (n: number) => parseIp(`10.${n >> 16}.${n >> 8 & 255}.${n & 255}`);
  for (let n = 0; n < 20_000; n++) seen.add(address(n));
  seen.add(parseIp("fd00::1"));
  expect(Array.from({ length: 20_000 }, (_, n) => n).every((n) => seen.mayHave(address(n)))).toBe(true);
  expect(seen.mayHave(parseIp("fd00::1"))).toBe(true);
  const wrong = Array.from({ length: 20_000 }, (_, n) => seen.mayHave(address(100_000 + n))).filter(Boolean);
  expect(wrong.length).toBeLessThan(400);
});
