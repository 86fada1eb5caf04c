import { expect, test } from "bun:test";
import { type Ip, nextIp, parseIp } from "../../ffi/address.ts";
import { CniError } from "../../spec/error.ts";
import { type AddressUsage, allocate } from "./allocate.ts";
import { rangeSet } from "../lib/model/address_ranges.ts";

const set = (...subnets: string[]) => rangeSet.parse(subnets.map((subnet) => ({ subnet })), "r");
const ips = (...texts: string[]) => texts.map(parseIp);
const usage = (taken: string[] = [], last?: string): AddressUsage => {
  const isTaken = (address: Ip) => ips(...taken).includes(address);
  return {
    isAllocated: isTaken,
    findHolder: () => ({ containerId: "other", ifname: "eth0" }),
    findFree(from) {
      let address: Ip | undefined = from;
      while (address !== undefined && isTaken(address)) address = nextIp(address);
      return address;
    },
    findLastReserved: () => last === undefined ? undefined : parseIp(last),
  };
};
/** All that a set has, in the order in which it is given out. */
function order(ranges: ReturnType<typeof set>, last?: string): string[] {
  const taken: string[] = [];
  for (;;) {
    try {
      taken.push(...addresses([ranges], [], taken, last));
    } catch {
      return taken;
    }
  }
}
const addresses = (sets: Parameters<typeof allocate>[0], requested: Ip[], ...use: Parameters<typeof usage>) =>
  allocate(sets, requested, usage(...use)).map(({ address }): string => address);

const TWO = ["10.0.0.0/30", "10.0.1.0/30"];
for (
  const [subnets, taken, last, wanted, what] of [
    [["10.0.0.0/29"], [], undefined, "10.0.0.2", "begins behind the gateway"],
    [["10.0.0.0/30"], [], undefined, "10.0.0.2", "gives the only address there is"],
    [["10.0.0.0/29"], ["10.0.0.2"], undefined, "10.0.0.3", "skips what is taken"],
    [["10.0.0.0/29"], [], "10.0.0.5", "10.0.0.6", "goes on behind the last"],
    [["10.0.0.0/29"], ["10.0.0.6"], "10.0.0.5", "10.0.0.2", "goes round at the end, past the gateway"],
    [["10.0.0.0/29"], ["10.0.0.4", "10.0.0.5"], "10.0.0.3", "10.0.0.6", "skips several"],
    [
      ["10.0.0.0/29"],
      ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"],
      "10.0.0.6",
      "10.0.0.6",
      "gives the last one again when it is the only one",
    ],
    [["10.0.0.0/29"], ["10.0.0.2", "10.0.0.3"], "10.0.0.128", "10.0.0.4", "begins anew when the last is in no range"],
    [["10.0.0.0/29"], [], "fd00::1", "10.0.0.2", "begins anew when the last is of the other family"],
    [["10.0.0.0/30"], [], "10.0.0.1", "10.0.0.2", "goes on behind the gateway"],
    [TWO, [], undefined, "10.0.0.2", "begins in the first range"],
    [TWO, ["10.0.0.2"], undefined, "10.0.1.2", "goes on in the next range"],
    [TWO, [], "10.0.0.2", "10.0.1.2", "goes from range to range"],
    [TWO, [], "10.0.1.2", "10.0.0.2", "goes from the last range to the first"],
    [TWO, ["10.0.1.2"], "10.0.0.2", "10.0.0.2", "goes round through all ranges"],
    [["::1000:0/126"], ["::1000:2"], "::1000:2", "::1000:3", "stays in IPv6 below 2^32"],
    [["fd00::/64"], [], "fd00::ff:ffff:ffff:ffff", "fd00::100:0:0:0", "carries"],
    [
      ["fd00::/64"],
      [],
      "fd00::ffff:ffff:ffff:fffe",
      "fd00::ffff:ffff:ffff:ffff",
      "gives the last address of an IPv6 network",
    ],
    [["fd00::/64"], [], "fd00::ffff:ffff:ffff:ffff", "fd00::2", "goes round in a network of 2^64 addresses"],
  ] as [string[], string[], string | undefined, string, string][]
) {
  test(`allocate() ${what}: ${subnets} after ${last}, without ${taken}`, () => {
    expect(addresses([set(...subnets)], [], taken, last)).toEqual([wanted]);
  });
}

test("allocate() gives every address once, never the gateway", () => {
  const ranges = set("10.0.0.0/29", "10.0.1.0/30");
  const first = ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"];
  expect(order(ranges)).toEqual([...first, "10.0.1.2"]);
  expect(order(ranges, "10.0.0.4")).toEqual(["10.0.0.5", "10.0.0.6", "10.0.1.2", "10.0.0.2", "10.0.0.3", "10.0.0.4"]);
});

test("allocate() ends in a set of one address, also when it is the gateway", () => {
  const one = (gateway: string) =>
    rangeSet.parse([{ subnet: "10.0.0.0/24", rangeStart: "10.0.0.9", rangeEnd: "10.0.0.9", gateway }], "r");
  expect(order(one("10.0.0.1"), "10.0.0.9")).toEqual(["10.0.0.9"]);
  expect(order(one("10.0.0.9"))).toEqual([]);
});

test("allocate() says which range is full, how full, and what to do", () => {
  let error: unknown;
  try {
    addresses([set("10.0.0.0/30", "10.0.1.0/30")], [], ["10.0.0.2", "10.0.1.2"]);
  } catch (thrown) {
    error = thrown;
  }
  expect(error).toEqual(
    new CniError(
      11,
      "Cannot allocate an address: all addresses of range set 10.0.0.1-10.0.0.2,10.0.1.1-10.0.1.2 are in use (2)",
      { details: "remove containers, release addresses of dead containers with GC, or configure a larger range" },
    ),
  );
});

test("allocate() gives each set the requested address that lies in it", () => {
  const sets = [set("10.0.0.0/24", "10.0.1.0/24"), set("fd00::/64"), set("10.9.0.0/24")];
  const choices = allocate(sets, ips("fd00::77", "10.0.1.7"), usage([], "10.9.0.3"));
  expect(choices.map(({ address, range }) => `${address} ${range.subnet}`)).toEqual([
    "10.0.1.7 10.0.1.0/24",
    "fd00::77 fd00::/64",
    "10.9.0.4 10.9.0.0/24",
  ]);
});

for (
  const [requested, taken, code, message] of [
    [
      ["10.0.0.5"],
      ["10.0.0.5"],
      11,
      'Cannot reserve requested address 10.0.0.5: container "other", interface "eth0" holds it',
    ],
    [["10.0.0.1"], [], 7, "Cannot reserve requested address 10.0.0.1: it is the gateway of 10.0.0.0/29"],
    [
      ["10.0.0.9"],
      [],
      7,
      "Cannot reserve requested address 10.0.0.9: every range set gives one address, and none of them includes it",
    ],
    [
      ["10.0.0.2", "10.0.0.3"],
      [],
      7,
      "Cannot reserve requested address 10.0.0.3: every range set gives one address, and those are taken by the other requests",
    ],
  ] as [string[], string[], number, string][]
) {
  test(`allocate() refuses a request for ${requested} with ${taken} taken`, () => {
    const call = () => addresses([set("10.0.0.0/29")], ips(...requested), taken);
    expect(call).toThrow(message);
    expect(call).toThrow(expect.objectContaining({ code }));
  });
}

test("allocate() keeps to rangeStart and rangeEnd for requests", () => {
  const part = rangeSet.parse([{ subnet: "10.0.0.0/24", rangeStart: "10.0.0.10", rangeEnd: "10.0.0.20" }], "r");
  expect(addresses([part], ips("10.0.0.10"))).toEqual(["10.0.0.10"]);
  expect(addresses([part], ips("10.0.0.20"))).toEqual(["10.0.0.20"]);
  expect(() => addresses([part], ips("10.0.0.9"))).toThrow("none of them includes it");
  expect(() => addresses([part], ips("10.0.0.21"))).toThrow("none of them includes it");
});
