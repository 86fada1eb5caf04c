import { expect, test } from "bun:test";
import { parseCidr, parseIp } from "../ffi/address.ts";
import { blocksOf } from "./blocks.ts";

const textOf = (cidr: string, ...except: string[]): string =>
  blocksOf([{ cidr: parseCidr(cidr), except: except.map(parseCidr) }]).text;

test.each(
  [
    ["10.0.0.0/8", [], "10.0.0.0-10.255.255.255"],
    ["0.0.0.0/0", [], "0.0.0.0-255.255.255.255"],
    ["10.0.0.0/30", ["10.0.0.1/32", "10.0.0.0/31"], "10.0.0.2-10.0.0.3"],
    ["10.0.0.0/8", ["0.0.0.0/0"], ""],
    ["10.0.0.0/31", ["10.0.0.1/32"], "10.0.0.0"],
    ["10.0.0.0/8", ["fd00::/8"], "10.0.0.0-10.255.255.255"],
    ["fd00::/126", ["fd00::2/128"], "fd00::-fd00::1,fd00::3"],
  ] as const,
)("%s without %p", (cidr, except, expected) => {
  expect(textOf(cidr, ...except)).toBe(expected);
});

test("no interval of IPv6 begins or ends where an address is one of IPv4", () => {
  const last = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
  expect(textOf("::/0")).toBe(`::-::fffe:ffff:ffff,::1:0:0:0-${last}`);
  expect(textOf("::/0", "::fffe:0:0/96")).toBe(`::-::fffd:ffff:ffff,::1:0:0:0-${last}`);
  expect(textOf("::/0", "::1:0:0:0/96")).toBe(`::-::fffe:ffff:ffff,::1:1:0:0-${last}`);
  expect(textOf("::fffe:0:0/95")).toBe("::fffe:0:0-::fffe:ffff:ffff");
  // The whole exception counts.
  const { contains } = blocksOf([{ cidr: parseCidr("::/0"), except: [parseCidr("::fffe:0:0/95")] }]);
  expect(["::fffe:0:1", "::fffd:0:1"].map((text) => contains(parseIp(text)))).toEqual([false, true]);
});
