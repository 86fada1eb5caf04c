/** What comes over the wire, damaged in every way: a reply, nothing, or one of our errors. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { type Cidr, type Ip, parseMac } from "../../../ffi/address.ts";
import { decodeUdpFrame, encodeUdpFrame } from "../../../ffi/packet/udp_frame.ts";
import { checkProperty, outcomeOf } from "../../../testing/fuzz.ts";
import { decodeReply, encodeRequest } from "./message.ts";
import { findOption, OPTION } from "./options.ts";
import { termsOf } from "./terms.ts";

const MAC = parseMac("02:00:00:00:00:01");
const OPTIONS: Readonly<Record<number, readonly number[]>> = {
  1: [255, 255, 255, 0],
  3: [10, 0, 0, 1, 10, 0, 0, 2],
  6: [10, 0, 0, 53],
  15: [..."example.org"].map((letter) => letter.charCodeAt(0)),
  26: [5, 120],
  33: [192, 0, 2, 7, 10, 0, 0, 9],
  42: [10, 0, 0, 123],
  51: [0, 0, 0, 120],
  54: [10, 0, 0, 1],
  58: [0, 0, 0, 30],
  59: [0, 0, 0, 90],
  // a.example.org, then b and a pointer to example.org
  119: [1, 97, 7, ...[..."example"].map((l) => l.charCodeAt(0)), 3, 111, 114, 103, 0, 1, 98, 192, 2],
  121: [24, 192, 0, 2, 10, 0, 0, 254, 0, 10, 0, 0, 1, 32, 198, 51, 100, 7, 0, 0, 0, 0],
};

/** An ACK with one of everything. */
function ack(change: Readonly<Record<number, readonly number[]>> = {}): Uint8Array {
  const options = Object.entries({ ...OPTIONS, ...change }).map(([code, value]) =>
    [Number(code), Uint8Array.from(value)] as const
  );
  const bytes = encodeRequest({
    type: "ack",
    xid: 7,
    secs: 0,
    broadcast: false,
    chaddr: MAC,
    options: new Map(options),
  });
  bytes[0] = 2;
  bytes.set([10, 0, 0, 7], 16);
  return bytes;
}

const read = (bytes: Uint8Array) => {
  const reply = decodeReply(bytes);
  return reply && termsOf(reply, MAC);
};

test("an ACK with every option is read", () => {
  expect(read(ack())).toEqual({
    address: "10.0.0.7" as Ip,
    cidr: "10.0.0.7/24",
    gateway: "10.0.0.1",
    routes: [
      { dst: "198.51.100.7/32" },
      { dst: "192.0.2.0/24", gw: "10.0.0.254" },
      { dst: "0.0.0.0/0", gw: "10.0.0.1" },
    ],
    dns: { nameservers: ["10.0.0.53"], domain: "example.org", search: ["a.example.org", "b.example.org"] },
    mtu: 1400,
    ntpServers: ["10.0.0.123"],
    serverId: "10.0.0.1",
    serverMac: MAC,
    duration: { renewMs: 30_000, rebindMs: 90_000, expiryMs: 120_000 },
  } as unknown as ReturnType<typeof termsOf>);
});

test("without classless routes, static routes have the prefix length of their class", () => {
  const value = [[9, 1, 2, 3], [172, 16, 1, 2], [192, 0, 2, 7]].flatMap((dst) => [...dst, 10, 0, 0, 9]);
  expect(read(ack({ 33: value, 121: [] }))!.routes).toEqual([
    { dst: "9.0.0.0/8", gw: "10.0.0.9" },
    { dst: "172.16.0.0/16", gw: "10.0.0.9" },
    { dst: "192.0.2.0/24", gw: "10.0.0.9" },
    { dst: "0.0.0.0/0", gw: "10.0.0.1" },
  ] as never);
});

const REFUSED: readonly [string, Parameters<typeof ack>[0], number][] = [
  ["no server", { 54: [] }, 7],
  ["a server of everybody", { 54: [255, 255, 255, 255] }, 7],
  ["the address of the network itself", { 1: [255, 255, 255, 248] }, 8],
  ["the address of all hosts of the network", { 1: [255, 255, 255, 248] }, 7],
];

test.each(REFUSED)("terms with %s are refused", (_, change, lastByte) => {
  const bytes = ack(change);
  bytes[19] = lastByte;
  expect(read(bytes)).toBeUndefined();
});

test("an address may be the first or last of a network of two (RFC 3021)", () => {
  expect(read(ack({ 1: [255, 255, 255, 254] }))!.cidr).toBe("10.0.0.7/31" as Cidr);
});

test("gateways that no host can have, the own address and repetitions are left out", () => {
  const own = [10, 0, 0, 7];
  const gateways = [[127, 0, 0, 1], [224, 0, 0, 1], [255, 255, 255, 255], own, [10, 0, 0, 1], [10, 0, 0, 1]];
  const routes = gateways.flatMap((gateway) => [24, 192, 0, 2, ...gateway]);
  const terms = read(ack({ 3: gateways.flat(), 121: routes }))!;
  expect(terms.gateway).toBe("10.0.0.1" as Ip);
  expect(terms.routes).toEqual([{ dst: "192.0.2.0/24", gw: "10.0.0.1" }] as never);
});

test.each([
  // Lease, T1 and T2 in seconds; milliseconds of T1, T2 and expiry.
  [3601, undefined, undefined, [1_800_500, 3_150_875, 3_601_000]],
  [100, undefined, 30, [15_000, 30_000, 100_000]],
  [100, 90, 80, [50_000, 80_000, 100_000]],
  [100, 50, 100, [50_000, 87_500, 100_000]],
  [0, 0, 0, [1000, 2000, 4000]],
  [0xffff_fffe, undefined, undefined, [2_147_483_647_000, 3_758_096_382_250, 4_294_967_294_000]],
])("a lease of %d s with T1 %p and T2 %p is renewed, rebound and over after %p ms", (lease, t1, t2, expected) => {
  const seconds = (value: number) => [24, 16, 8, 0].map((shift) => value >>> shift & 0xff);
  const change = {
    51: seconds(lease),
    58: t1 === undefined ? [] : seconds(t1),
    59: t2 === undefined ? [] : seconds(t2),
  };
  const { duration } = read(ack(change))!;
  expect(Object.values(duration!)).toEqual(expected);
  expect(expected.every(Number.isSafeInteger)).toBe(true);
});

test.each([
  ["a name that would be a line of resolv.conf", { 15: [97, 10, 98] }, "domain"],
  ["a name server for everybody", { 6: [224, 0, 0, 1] }, "nameservers"],
])("%s is left out", (_, change, key) => expect(read(ack(change))!.dns).not.toHaveProperty(key));

test.each([
  ["a mask with gaps", { 1: [255, 0, 255, 0] }, "cidr"],
  ["an MTU below what every host takes", { 26: [0, 68] }, "mtu"],
  ["an infinite time", { 51: [255, 255, 255, 255] }, "duration"],
])("%s is no part of the terms", (_, change, key) => expect(read(ack(change))).not.toHaveProperty(key));

test("pieces of a long option are joined, and options may stand in the fields of names", () => {
  const bytes = ack({ 52: [3] });
  bytes.set([15, 3, 46, 97, 98, 255], 108);
  bytes.set([15, 2, 46, 99, 255], 44);
  expect(read(bytes)!.dns.domain).toBe("example.org.ab.c");
});

test("names that point to each other come to an end", () => {
  for (const value of [[192, 0], [1, 97, 192, 2], [1, 97, 192, 0], [192, 3, 0, 192, 1]]) {
    expect(read(ack({ 119: value }))!.dns.search).toBeUndefined();
  }
});

const EDGES = [0, 1, 2, 3, 4, 5, 15, 26, 33, 51, 52, 53, 54, 63, 64, 119, 121, 0x7f, 0x80, 0xc0, 0xff];

test("a message with any bytes changed, or cut anywhere, is read or refused", () => {
  const whole = ack();
  const frame = encodeUdpFrame({
    source: { mac: MAC, ip: "10.0.0.1" as Ip, port: 67 },
    destination: { mac: MAC, ip: "10.0.0.7" as Ip, port: 68 },
    payload: whole,
  });
  expect(decodeUdpFrame(frame)?.payload).toEqual(whole);
  const change = fc.tuple(fc.nat(frame.length - 1), fc.oneof(fc.constantFrom(...EDGES), fc.nat(255)));
  checkProperty(
    fc.property(fc.array(change, { maxLength: 8 }), fc.nat(frame.length), (changes, length) => {
      const bytes = frame.slice();
      for (const [at, value] of changes) bytes[at] = value;
      for (const candidate of [bytes, bytes.subarray(0, length)]) {
        const decoded = outcomeOf(() => decodeUdpFrame(candidate));
        if ("error" in decoded) throw decoded.error;
        if (!decoded.value) continue;
        const payload = decoded.value.payload;
        const outcome = outcomeOf(() => read(payload));
        if ("error" in outcome) throw outcome.error;
      }
      const payload = outcomeOf(() => read(bytes.subarray(42)));
      if ("error" in payload) throw payload.error;
    }),
    3000,
  );
});

test("an option of any bytes has a value or none", () => {
  const names = ["routers", "domainName", "staticRoutes", "domainSearch", "classlessRoutes", "leaseTime"] as const;
  checkProperty(
    fc.property(fc.constantFrom(...names), fc.uint8Array({ maxLength: 300 }), (name, value) => {
      const outcome = outcomeOf(() => findOption(new Map([[OPTION[name], value]]), name));
      if ("error" in outcome) throw outcome.error;
    }),
    3000,
  );
});
