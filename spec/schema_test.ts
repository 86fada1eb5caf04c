import { expect, test } from "bun:test";
import fc from "fast-check";
import { ConfigError } from "./error.ts";
import { JSON_TEXT, parseJson } from "./jsonc.ts";
import * as schema from "./schema.ts";

const bridge = schema.object({
  name: schema.nonEmptyString,
  bridge: schema.withDefault(schema.nonEmptyString, "cni0"),
  mtu: schema.optional(schema.int({ min: 0, max: 65535 })),
  ipMasq: schema.withDefault(schema.boolean, false),
  gateway: schema.optional(schema.ipAddress),
  mode: schema.optional(schema.oneOf("bridge", "private")),
  ipam: schema.optional(schema.object({ ranges: schema.array(schema.array(schema.object({ subnet: schema.cidr }))) })),
  sysctl: schema.optional(schema.record(schema.string)),
});

test("object() parses, fills in and keeps unknown keys", () => {
  const parsed: schema.Infer<typeof bridge> = bridge.parse({ name: "web", mtu: 1500, other: { A: null } });
  expect(parsed).toEqual({ name: "web", bridge: "cni0", mtu: 1500, ipMasq: false, other: { A: null } } as never);
});

for (
  const [what, node, expected] of [
    ["matches keys in any case", { NAME: "a", Mtu: 1 }, { name: "a", mtu: 1 }],
    ["prefers the exact spelling", { name: "a", NAME: "b" }, { name: "a" }],
    ["takes the last of other spellings", { name: "a", MTU: 1, Mtu: 2 }, { name: "a", mtu: 2 }],
    ["takes null as absent", { name: "a", bridge: null, mtu: null, ipam: null }, { name: "a" }],
    ["takes an empty address or name as absent", { name: "a", bridge: "", gateway: "" }, { name: "a" }],
    ["does not fold keys of a record", { name: "a", SYSCTL: { a: "1", A: "2" } }, {
      name: "a",
      sysctl: { a: "1", A: "2" },
    }],
    ["canonicalises addresses", { name: "a", gateway: "FD00:0::1" }, { name: "a", gateway: "fd00::1" }],
    ["accepts one of a set", { name: "a", mode: "private" }, { name: "a", mode: "private" }],
  ] as [string, object, object][]
) {
  test(`object() ${what}`, () => {
    expect(bridge.parse(node)).toEqual({ bridge: "cni0", ipMasq: false, ...expected } as never);
  });
}

test("knownKeys() leaves unknown keys out", () => {
  expect(schema.knownKeys({ a: schema.string }).parse({ A: "x", b: 1 })).toEqual({ a: "x" });
});

test("object() does not find inherited keys, nor set prototypes", () => {
  const shape = schema.object({ constructor: schema.optional(schema.string), a: schema.optional(schema.string) });
  const parsed = shape.parse(JSON.parse('{"__proto__":{"a":"x"}}'));
  expect(Object.keys(parsed)).toEqual(["__proto__"]);
  expect(parsed.a).toBeUndefined();
  expect(Object.getPrototypeOf(parsed)).toBe(Object.prototype);
});

const subnet = (value: unknown) => ({ name: "a", ipam: { ranges: [[{ subnet: value }]] } });
for (
  const [node, path, expected, got] of [
    [{}, "name", "a non-empty string", "nothing"],
    [{ name: "" }, "name", "a non-empty string", '""'],
    [{ NAME: 1 }, "NAME", "a non-empty string", "1"],
    [[], "", "an object", "[]"],
    [null, "", "an object", "null"],
    [{ name: "a", mtu: 1.5 }, "mtu", "a whole number from 0 to 65535", "1.5"],
    [{ name: "a", mtu: -1 }, "mtu", "a whole number from 0 to 65535", "-1"],
    [{ name: "a", mtu: "1500" }, "mtu", "a whole number from 0 to 65535", '"1500"'],
    [
      { name: "a", mtu: JSON_TEXT.rawJSON("9007199254740993") },
      "mtu",
      "a whole number from 0 to 65535",
      "9007199254740993",
    ],
    [{ name: "a", ipMasq: "true" }, "ipMasq", "true or false", '"true"'],
    [{ name: "a", gateway: "10.0.0.1/8" }, "gateway", 'an IP address such as "10.1.0.2"', '"10.0.0.1/8"'],
    [{ name: "a", mode: "Bridge" }, "mode", '"bridge" or "private"', '"Bridge"'],
    [subnet("10.1.0.0/33"), "ipam.ranges[0][0].subnet", 'a CIDR such as "10.1.0.0/16"', '"10.1.0.0/33"'],
    [subnet(""), "ipam.ranges[0][0].subnet", 'a CIDR such as "10.1.0.0/16"', '""'],
    [subnet(undefined), "ipam.ranges[0][0].subnet", 'a CIDR such as "10.1.0.0/16"', "nothing"],
    [{ name: "a", ipam: { ranges: {} } }, "ipam.ranges", "an array", "{}"],
    [{ name: "a", ipam: { ranges: [[null]] } }, "ipam.ranges[0][0]", "an object", "null"],
    [{ name: "a", ipam: JSON_TEXT.rawJSON("1") }, "ipam", "an object", "1"],
    [{ name: "a", sysctl: { "net.core.x": 1 } }, 'sysctl["net.core.x"]', "a string", "1"],
    [{ name: ["x".repeat(200)] }, "name", "a non-empty string", `["${"x".repeat(77)}…`],
  ] as [unknown, string, string, string][]
) {
  test(`object() refuses ${JSON.stringify(node).slice(0, 60)}`, () => {
    expect(() => bridge.parse(node)).toThrow(new ConfigError(path, expected, got));
  });
}

test("oneOf(), int() and satisfying() say what they accept", () => {
  expect(() => schema.oneOf("a", "b", "c").parse(1, "x")).toThrow('x must be "a", "b" or "c": got 1');
  expect(() => schema.int().parse("1", "x")).toThrow('x must be a whole number: got "1"');
  expect(() => schema.int({ min: 1 }).parse(0, "x")).toThrow("x must be a whole number of at least 1: got 0");
  const even = schema.refine(schema.int(), "an even number", (value) => value % 2 === 0);
  expect(even.parse(2)).toBe(2);
  expect(() => even.parse(3, "x")).toThrow("x must be an even number: got 3");
});

test("route parses what SPEC lists", () => {
  const full = { dst: "10.0.0.0/8", gw: "10.0.0.1", mtu: 1400, advmss: 1, priority: 2, table: 0, scope: 253 };
  expect(schema.route.parse(full)).toEqual(full as never);
  expect(schema.route.parse({ dst: "::/0", gw: "", table: null })).toEqual({ dst: "::/0" as never });
  expect(() => schema.route.parse({ gw: "10.0.0.1" }, "routes[0]")).toThrow("routes[0].dst must be a CIDR");
});

test("ipOrCidr and mac canonicalise", () => {
  expect<string>(schema.ipOrCidr.parse("FD00::1/64")).toBe("fd00::1/64");
  expect<string>(schema.ipOrCidr.parse("::ffff:10.0.0.1")).toBe("10.0.0.1");
  expect<string>(schema.mac.parse("0A-58-0A-01-00-02")).toBe("0a:58:0a:01:00:02");
});

test.each(["ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "01:00:5e:00:00:01", "0000.0000.0000", "33-33-00-00-00-01"])(
  "mac refuses %s, which no interface can have",
  (text) => {
    expect(() => schema.mac.parse(text, "runtimeConfig.mac")).toThrow(
      `runtimeConfig.mac must be the MAC address of a single interface, neither multicast nor zero: got "${text}"`,
    );
  },
);

test("mac takes the same forms as ever, and refuses others as such", () => {
  for (const text of ["02:00:00:00:00:00", "00:00:00:00:00:01", "fe:ff:ff:ff:ff:ff"]) {
    expect<string>(schema.mac.parse(text)).toBe(text);
  }
  expect(() => schema.mac.parse("0a:58")).toThrow('must be a MAC address such as "0a:58:0a:01:00:02": got "0a:58"');
  expect(schema.optional(schema.mac).parse("")).toBeUndefined();
});

test("parse() of random JSON returns or throws ConfigError", () => {
  const key = fc.constantFrom("name", "Name", "mtu", "ipam", "ranges", "subnet", "gateway", "x");
  const { node } = fc.letrec((tie) => ({
    node: fc.oneof(
      { maxDepth: 5 },
      fc.jsonValue(),
      fc.constantFrom("a", "10.0.0.0/8", "::1"),
      fc.dictionary(key, tie("node")),
      fc.array(tie("node")),
    ),
  }));
  fc.assert(fc.property(node, (value) => {
    try {
      bridge.parse(value);
    } catch (error) {
      expect(error).toBeInstanceOf(ConfigError);
    }
  }));
});

test("uint64 keeps every digit, as number or as text that JSON.parse() kept", () => {
  const read = (text: string) => schema.uint64.parse(parseJson(text));
  for (const text of ["0", "1", "4294967296", "9007199254740993", "18446744073709551615", "1152921504606846976"]) {
    expect(read(text)).toBe(BigInt(text));
  }
  for (
    const text of ["-1", "0.5", "18446744073709551616", "1e300", "1e3000", "9007199254740993.5", '"1"', "true", "{}"]
  ) {
    expect(() => read(text)).toThrow("must be a whole number from 0 to 2^64-1: got ");
  }
});
