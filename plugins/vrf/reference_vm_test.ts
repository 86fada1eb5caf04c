/** The same requests to the reference plugin and to this one: the same VRF, addresses and routes, and either removes what the other made. */
import { expect } from "bun:test";
import type { Netns } from "../../ffi/netns/netns.ts";
import { runInNetns } from "../../testing/netns.ts";
import { sampleOf } from "../../testing/sample.ts";
import { newSandbox, type Sandbox } from "../../testing/sandbox.ts";
import { callReference, REFERENCE_VERSION, referenceTest } from "../../testing/reference.ts";
import type { CniCommand } from "../../spec/version.ts";
import vrf from "./plugin.ts";

const peerTest = referenceTest("vrf");

// deno-lint-ignore no-explicit-any -- what ip(8) prints
type Json = any;
type Side = (sandbox: Sandbox, verb: CniCommand, config: object) => unknown;
const theirs: Side = (sandbox, verb, config) => callReference(sandbox, "vrf", verb, config);
const ours: Side = ({ call }, verb, config) => {
  try {
    return call(vrf, verb, { cniVersion: REFERENCE_VERSION, ...config });
  } catch {
    return "refused";
  }
};

const prevResult = { cniVersion: "1.0.0", interfaces: [{ name: "eth0" }], routes: [{ dst: "192.0.2.0/24" }] };
const red = { vrfname: "red", prevResult };
const ip = (netns: Netns, ...lines: readonly string[]) =>
  runInNetns(netns, "sh", "-ec", lines.map((each) => `ip ${each}`).join("\n"));

/** eth0 with both families and routes, and eth1 with others. */
function prepare({ container }: Sandbox, ...more: string[]): void {
  for (const each of ["all", "default"]) {
    runInNetns(container, "sh", "-ec", `echo 0 >/proc/sys/net/ipv6/conf/${each}/accept_dad`);
  }
  for (const i of [0, 1]) {
    ip(
      container,
      `link add eth${i} address 0a:00:00:00:00:0${i} type veth peer name peer${i}`,
      `link set peer${i} up`,
      `addr add 10.${i}.0.2/24 dev eth${i}`,
      `addr add fd00:${i}::2/64 dev eth${i} nodad`,
      `link set eth${i} up`,
      `route add 203.0.11${i}.0/24 via 10.${i}.0.1 metric ${i * 100}`,
      `-6 route add 2001:db8:${i}::/48 via fd00:${i}::1`,
    );
  }
  if (more.length > 0) ip(container, ...more);
}

/** The VRFs, and what there is of addresses and routes, in the words of ip(8). */
function picture({ container }: Sandbox): Json {
  const shown = (...words: string[]): Json[] => JSON.parse(runInNetns(container, "ip", "-j", "-d", ...words) || "[]");
  const routes = ["-4", "-6"].flatMap((family) => shown(family, "route", "show", "table", "all"));
  const lasting = ({ protocol, table, dst }: Json) =>
    protocol !== "kernel" && table !== "local" && !dst.startsWith("f");
  return {
    links: shown("link").map(({ ifname, master, linkinfo }) => [ifname, master, linkinfo?.info_data?.table]).sort(),
    addresses: shown("addr").flatMap(({ ifname, addr_info }) =>
      addr_info.filter(({ scope }: Json) => scope === "global").map(({ local }: Json) => `${ifname} ${local}`)
    ).sort(),
    routes: routes.filter(lasting).map(({ dst, gateway, dev, table = "main", metric, prefsrc }) =>
      [dst, gateway, dev, table, metric, prefsrc].join(" ")
    ).sort(),
  };
}

const CASES: Record<string, { readonly config?: object; readonly before?: readonly string[] }> = {
  "a new VRF": {},
  "a table that is given": { config: { table: 70_000 } },
  "a VRF that exists": { before: ["link add red up type vrf table 42"] },
  "a VRF that exists, with its table": { config: { table: 42 }, before: ["link add red up type vrf table 42"] },
  "other VRFs": { before: [1, 2, 3, 5].map((each) => `link add v${each} type vrf table ${each}`) },
  "a VRF of another table": { config: { table: 7 }, before: ["link add red up type vrf table 42"] },
  "another kind": { before: ["link add red type bridge"] },
  "another master": { before: ["link add br0 type bridge", "link set eth0 master br0"] },
  "no such interface": { before: ["link del eth0"] },
  "no name": { config: { vrfname: "" } },
  "no result": { config: { prevResult: null } },
};
for (const [name, { config = {}, before = [] }] of sampleOf(Object.entries(CASES))) {
  peerTest(`vrf answers and leaves what the reference plugin does: ${name}`, () => {
    const [reference, own] = [theirs, ours].map((side) => {
      using sandbox = newSandbox([]);
      prepare(sandbox, ...before);
      return { answer: side(sandbox, "ADD", { ...red, ...config }), ...picture(sandbox) };
    });
    // When it refuses, the reference leaves the VRF that it has made; this release of it loses the routes, which later ones move.
    const withoutOwn = (side: Json) => ({
      ...side,
      links: side.answer === "refused" ? side.links.filter(([link]: string[]) => link !== "red") : side.links,
      routes: side.routes.filter((each: string) => !each.includes(" eth0 ")),
    });
    expect(withoutOwn(own)).toEqual(withoutOwn(reference));
    const moved = own.routes.filter((each: string) => each.includes(" eth0 ") && !each.includes(" main "));
    expect(moved).toHaveLength(own.answer === "refused" ? 0 : 2);
  });
}

for (const [first, second] of [[theirs, ours], [ours, theirs]] as const) {
  peerTest(`either checks and removes what the other made: ${first === theirs ? "theirs" : "ours"} first`, () => {
    using sandbox = newSandbox([]);
    prepare(sandbox);
    expect(first(sandbox, "ADD", red)).not.toBe("refused");
    expect(second(sandbox, "CHECK", red)).not.toBe("refused");
    expect(second(sandbox, "DEL", red)).not.toBe("refused");
    expect(picture(sandbox).links.map(([link, master]: string[]) => [link, master])).toEqual(
      ["eth0", "eth1", "lo", "peer0", "peer1"].map((each) => [each, undefined]),
    );
    // The reference's CHECK takes a VRF that is not there for granted.
    if (second === ours) expect(second(sandbox, "CHECK", red)).toBe("refused");
  });
}
