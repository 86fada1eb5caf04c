/** On a kernel that has VRFs: not that of every machine. */
import { expect } from "bun:test";
import type { Netns } from "../../ffi/netns/netns.ts";
import * as link from "../../ffi/route/link.ts";
import { ipShow, linkNames, runInNetns, until } from "../../testing/netns.ts";
import { awaitLinkOperational } from "../lib/links/configure_interface.ts";
import { type Sandbox, sandboxTest } from "../../testing/sandbox.ts";
import type { Result } from "../../spec/result.ts";
import { findPlugin, loadPlugins } from "../registry.ts";
import vrf from "./plugin.ts";

// What a chain of plugins needs besides this one comes from the registry, as in a call.
await loadPlugins(["ptp", "static"]);
const [ptp, staticIpam] = [findPlugin("ptp")!, findPlugin("static")!];

const vrfTest = (name: string, body: (sandbox: Sandbox) => void | Promise<void>) =>
  sandboxTest(name, [staticIpam], body);
const tableOf = (netns: Netns, name: string): number => ipShow(netns, "link", "show", name)[0].linkinfo.info_data.table;
const masterOf = (netns: Netns, name: string): string | undefined => ipShow(netns, "link", "show", name)[0].master;
const ip = (netns: Netns, ...lines: string[]) =>
  runInNetns(netns, "sh", "-ec", lines.map((each) => `ip ${each}`).join("\n"));
/** The destinations in a table, without the kernel's own. */
const routes = (netns: Netns, table: number | string): string[] =>
  ["-4", "-6"].flatMap((family) =>
    listed(netns, family, table).filter(({ type, protocol, dst }) =>
      type === "unicast" && protocol !== "kernel" && !dst.startsWith("fe80")
    ).map(({ dst, gateway, metric, prefsrc }) =>
      [dst, gateway && `via ${gateway}`, metric !== 1024 && metric && `metric ${metric}`, prefsrc && `src ${prefsrc}`]
        .filter(Boolean).join(" ")
    )
  ).sort();
/** A table that never held a route is none. */
// deno-lint-ignore no-explicit-any -- what ip(8) prints
const listed = (netns: Netns, family: string, table: number | string): any[] =>
  JSON.parse(
    runInNetns(netns, "sh", "-c", `it=$(ip -j -d ${family} route show table ${table} 2>&-) && echo "$it"; true`)
      .trim() ||
      "[]",
  );
const addresses = (netns: Netns, name: string): string[] =>
  ipShow(netns, "addr", "show", "dev", name)[0].addr_info.filter(({ scope }: { scope: string }) => scope === "global")
    .map(({ local, tentative }: { local: string; tentative?: boolean }) => tentative ? `${local} tentative` : local);

/** An interface with addresses, up, whose other end stands on the host. Both carry frames. */
function addInterface({ host, container }: Sandbox, name: string, ...given: string[]): void {
  ip(host, `link add ${name}h up type veth peer name ${name} netns ${container.path}`);
  ip(
    container,
    ...given.map((each) => `addr add ${each} dev ${name}${each.includes(":") ? " nodad" : ""}`),
    `link set ${name} up`,
  );
  awaitLinkOperational(container, link.get(container.route, name));
  awaitLinkOperational(host, link.get(host.route, `${name}h`));
}
const prevResult = { cniVersion: "1.1.0", interfaces: [], ips: [], routes: [] };
const red = { vrfname: "red", prevResult };
const blue = { vrfname: "blue", prevResult };

vrfTest(
  "vrf ADD makes a VRF with a table of its own, moves addresses and routes, and hands the result on",
  (sandbox) => {
    const { call, container } = sandbox;
    addInterface(sandbox, "eth0", "10.1.2.2/24", "fd00:1::2/64");
    addInterface(sandbox, "eth1", "10.2.2.2/24", "fd00:2::2/64");
    ip(
      container,
      "route add 192.0.2.0/24 via 10.1.2.1",
      "route add 203.0.113.0/24 dev eth0 scope link src 10.1.2.2 metric 100",
      "route add 198.51.100.0/24 dev eth0 table 500",
      "route add 192.0.3.0/24 via 10.2.2.1",
      "-6 route add 2001:db8:1::/48 via fd00:1::1",
      "-6 route add 2001:db8:2::/48 via fd00:2::1",
    );
    const given = { ...prevResult, routes: [{ dst: "192.0.2.0/24" }] };
    expect(call(vrf, "ADD", { ...red, prevResult: given }) as unknown).toEqual({ routes: [{ dst: "192.0.2.0/24" }] });
    expect(tableOf(container, "red")).toBe(1);
    expect(masterOf(container, "eth0")).toBe("red");
    expect(addresses(container, "eth0")).toEqual(["10.1.2.2", "fd00:1::2"]);
    expect(routes(container, 1)).toEqual([
      "192.0.2.0/24 via 10.1.2.1",
      "2001:db8:1::/48 via fd00:1::1",
      "203.0.113.0/24 metric 100 src 10.1.2.2",
    ]);
    expect(routes(container, 500)).toEqual(["198.51.100.0/24"]);
    expect(routes(container, "main")).toEqual(["192.0.3.0/24 via 10.2.2.1", "2001:db8:2::/48 via fd00:2::1"]);
    call(vrf, "CHECK", red);
  },
);

vrfTest("vrf DEL spares what another container has that came to the path of the namespace", (sandbox) => {
  const { call, container } = sandbox;
  addInterface(sandbox, "eth0", "10.1.2.2/24");
  call(vrf, "ADD", red, { containerId: "c2" });
  const interfaces = [{ name: "eth0", mac: "0a:00:00:00:00:77", sandbox: container.path }];
  call(vrf, "DEL", { ...red, prevResult: { ...prevResult, interfaces } });
  expect(masterOf(container, "eth0")).toBe("red");
  call(vrf, "DEL", red, { containerId: "c2" });
  expect(masterOf(container, "eth0")).toBeUndefined();
});

vrfTest("packets of a VRF go by its routes only, on IPv4 and IPv6, as soon as ADD returns", (sandbox) => {
  const { call, host, container } = sandbox;
  addInterface(sandbox, "eth0", "10.1.2.2/24", "fd00:1::2/64");
  ip(host, "addr add 10.1.2.1/24 dev eth0h", "addr add fd00:1::1/64 dev eth0h nodad");
  const reach = (patienceS: number, target: string, ...by: string[]) =>
    runInNetns(container, "busybox", "ping", "-c1", `-W${patienceS}`, ...by, target);
  const gateways = ["10.1.2.1", "fd00:1::1"];
  call(vrf, "ADD", red);
  for (const each of gateways) reach(20, each, "-I", "red");
  for (const each of gateways) expect(() => reach(1, each)).toThrow(/ended with 1|unreachable/);
  call(vrf, "DEL", red);
  for (const each of gateways) reach(20, each);
});

vrfTest(
  "interfaces share a VRF or have others, also with the same address; the VRF goes with the last of them",
  (sandbox) => {
    const { call, container } = sandbox;
    for (const each of ["eth0", "eth1", "eth2"]) addInterface(sandbox, each, "10.1.2.2/24", "fd00:1::2/64");
    call(vrf, "ADD", red);
    call(vrf, "ADD", red, { ifname: "eth1" });
    call(vrf, "ADD", blue, { ifname: "eth2" });
    expect(["red", "blue"].map((each) => tableOf(container, each))).toEqual([1, 2]);
    for (const each of ["eth0", "eth1", "eth2"]) expect(addresses(container, each)).toEqual(["10.1.2.2", "fd00:1::2"]);
    call(vrf, "CHECK", red, { ifname: "eth1" });
    call(vrf, "DEL", red);
    expect(linkNames(container)).toContain("red");
    call(vrf, "DEL", red, { ifname: "eth1" });
    expect(linkNames(container)).not.toContain("red");
    expect(masterOf(container, "eth2")).toBe("blue");
  },
);

vrfTest("a free table is one that no VRF has, no rule names, that holds nothing and is not the system's", (sandbox) => {
  const { call, container } = sandbox;
  for (const table of [1, 2, 3, 5]) ip(container, `link add v${table} type vrf table ${table}`);
  addInterface(sandbox, "eth0", "10.1.2.2/24");
  addInterface(sandbox, "eth1", "10.2.2.2/24");
  ip(container, "rule add from 10.9.9.9 table 6", "route add 192.0.2.0/24 dev eth1 table 7");
  call(vrf, "ADD", red);
  expect(tableOf(container, "red")).toBe(4);
  call(vrf, "ADD", blue, { ifname: "eth1" });
  expect(tableOf(container, "blue")).toBe(8);
});

vrfTest("the system's tables are passed over", (sandbox) => {
  const { container } = sandbox;
  ip(container, ...Array.from({ length: 252 }, (_, i) => `rule add from 10.9.9.9 table ${i + 1}`));
  addInterface(sandbox, "eth0", "10.1.2.2/24");
  sandbox.call(vrf, "ADD", red);
  expect(tableOf(container, "red")).toBe(256);
  sandbox.call(vrf, "DEL", red);
});

vrfTest(
  "a table that is given is used, also one that another VRF has, and must be that of a VRF that exists",
  (sandbox) => {
    const { call, container } = sandbox;
    for (const each of ["eth0", "eth1", "eth2"]) addInterface(sandbox, each, "10.1.2.2/24");
    call(vrf, "ADD", { ...red, table: 70_000 });
    call(vrf, "ADD", { ...blue, table: 70_000 }, { ifname: "eth1" });
    expect(["red", "blue"].map((each) => tableOf(container, each))).toEqual([70_000, 70_000]);
    const other = () => call(vrf, "ADD", { ...red, table: 10 }, { ifname: "eth2" });
    expect(other).toThrow('Cannot use VRF "red" with table 10: it exists and has table 70000');
    expect(masterOf(container, "eth2")).toBeUndefined();
    call(vrf, "CHECK", { ...red, table: 70_000 });
    expect(() => call(vrf, "CHECK", { ...red, table: 10 })).toThrow(
      'table of "red" in the container is 70000, expected 10',
    );
  },
);

vrfTest("ADD that is repeated changes nothing; other masters and kinds are refused and named", (sandbox) => {
  const { call, container } = sandbox;
  addInterface(sandbox, "eth0", "10.1.2.2/24", "fd00:1::2/64");
  call(vrf, "ADD", red);
  const state =
    () => [addresses(container, "eth0"), routes(container, 1), linkNames(container), tableOf(container, "red")];
  const before = state();
  call(vrf, "ADD", red);
  expect(state()).toEqual(before);
  expect(() => call(vrf, "ADD", blue)).toThrow('Cannot put "eth0" into VRF "blue": it is a port of "red"');
  ip(container, "link add br0 type bridge", "link add eth5 type veth peer name eth6", "link set eth5 master br0");
  expect(() => call(vrf, "ADD", blue, { ifname: "eth5" })).toThrow('it is a port of "br0"');
  expect(() => call(vrf, "ADD", { ...red, vrfname: "br0" }, { ifname: "eth6" })).toThrow(
    'Cannot use "br0" as a VRF: it is an interface of another kind (bridge)',
  );
  expect(() => call(vrf, "ADD", blue, { ifname: "eth9" })).toThrow('"eth9"');
  expect(linkNames(container)).not.toContain("blue");
});

vrfTest("DEL gives routes and addresses back, and succeeds when things are gone", (sandbox) => {
  const { call, container } = sandbox;
  addInterface(sandbox, "eth0", "10.1.2.2/24", "fd00:1::2/64");
  ip(container, "route add default via 10.1.2.1", "-6 route add default via fd00:1::1");
  const before = routes(container, "main");
  expect(before).toEqual(["default via 10.1.2.1", "default via fd00:1::1"]);
  call(vrf, "ADD", red);
  expect([routes(container, 1), routes(container, "main")]).toEqual([before, []]);
  call(vrf, "DEL", red);
  expect(routes(container, "main")).toEqual(before);
  expect(ipShow(container, "addr", "show", "dev", "eth0")[0].addr_info.map(({ local }: { local: string }) => local))
    .toEqual(
      expect.arrayContaining(["10.1.2.2", "fd00:1::2"]),
    );
  expect(linkNames(container)).toEqual(["eth0", "lo"]);
  call(vrf, "DEL", red);
  call(vrf, "DEL", red, { netns: null });
  call(vrf, "DEL", red, { netns: "/run/netns/absent" });
  // A master that is not this VRF is left.
  ip(container, "link add blue type vrf table 9", "link set eth0 master blue");
  call(vrf, "DEL", red);
  expect(masterOf(container, "eth0")).toBe("blue");
  call(vrf, "ADD", blue);
  ip(container, "link del eth0");
  call(vrf, "DEL", blue);
  expect(linkNames(container)).toEqual(["lo"]);
});

vrfTest("DEL does not fail for routes that the container made, and says what it could not give back", (sandbox) => {
  const { call, container, log } = sandbox;
  addInterface(sandbox, "eth0", "10.1.2.2/24");
  call(vrf, "ADD", red);
  ip(
    container,
    "route add 10.55.0.0/24 dev eth0 scope link table 1",
    "route add 198.51.100.0/24 via 10.55.0.1 table 1",
    "route del 10.55.0.0/24 table 1",
  );
  call(vrf, "DEL", red);
  expect(log.join()).toContain("Cannot add route to 198.51.100.0/24 via 10.55.0.1 in table 254");
  expect(linkNames(container)).toEqual(["eth0", "lo"]);
});

vrfTest("CHECK names what has changed", (sandbox) => {
  const { call, container } = sandbox;
  addInterface(sandbox, "eth0", "10.1.2.2/24");
  const check = () => call(vrf, "CHECK", red);
  expect(check).toThrow('vrf "red" is missing in the container');
  call(vrf, "ADD", red);
  check();
  ip(container, "link set red down");
  expect(check).toThrow('vrf "red" in the container is down');
  ip(container, "link set red up", "link set eth0 nomaster");
  expect(check).toThrow('interface "eth0" in the container is no port of "red"');
  ip(container, "link del eth0");
  expect(check).toThrow('interface "eth0" is missing');
  for (const verb of ["ADD", "CHECK"] as const) {
    expect(() => call(vrf, verb, { vrfname: "red" })).toThrow("prevResult is missing");
  }
  for (const verb of ["ADD", "CHECK", "STATUS"] as const) {
    expect(() => call(vrf, verb, { prevResult })).toThrow("vrfname must be an interface name");
  }
});

/** IPv6 addresses that stay when the interface is set down, and are then asked about on the wire again. */
const askedAgain = (netns: Netns) =>
  runInNetns(netns, "sh", "-ec", "cd /proc/sys/net/ipv6/conf/eth0; echo 1 >keep_addr_on_down; echo 0 >accept_dad");

vrfTest("an ADD that fails late puts the interface back where it was", async (sandbox) => {
  const { call, host, container } = sandbox;
  addInterface(sandbox, "eth0", "10.1.2.2/24");
  askedAgain(container);
  ip(container, "addr add fd00:1::2/64 dev eth0", "route add 192.0.2.0/24 via 10.1.2.1");
  await until(() => addresses(container, "eth0").includes("fd00:1::2"));
  // It asks until it is answered: the host hears nothing yet when the link has just come up.
  runInNetns(container, "sh", "-ec", "cd /proc/sys/net/ipv6/conf/eth0; echo 1 >accept_dad; echo 60 >dad_transmits");
  ip(host, "addr add fd00:1::2/64 dev eth0h nodad");
  expect(() => call(vrf, "ADD", red)).toThrow('Cannot use address fd00:1::2/64 on "eth0": another host of the network');
  expect(linkNames(container)).toEqual(["eth0", "lo"]);
  expect(masterOf(container, "eth0")).toBeUndefined();
  expect(routes(container, "main")).toEqual(["192.0.2.0/24 via 10.1.2.1"]);
});

vrfTest(
  "an interface without carrier, one that is down and one that leads nowhere are put into a VRF as well",
  (sandbox) => {
    const { call, host, container } = sandbox;
    addInterface(sandbox, "eth0", "10.1.2.2/24", "fd00:1::2/64");
    ip(host, "link set eth0h down");
    ip(container, "route add 192.0.2.0/24 via 10.1.2.1", "link add eth1 type dummy", "link add eth2 up type dummy");
    ip(container, "addr add fd00:3::2/64 dev eth2", "-6 route add 2001:db8:3::/48 dev eth2");
    for (const ifname of ["eth0", "eth1", "eth2"]) call(vrf, "ADD", red, { ifname });
    expect(["eth0", "eth1", "eth2"].map((each) => masterOf(container, each))).toEqual(["red", "red", "red"]);
    expect(routes(container, 1)).toEqual(["192.0.2.0/24 via 10.1.2.1", "2001:db8:3::/48"]);
    expect(addresses(container, "eth2")).toEqual(["fd00:3::2"]);
  },
);

vrfTest("an interface that is down keeps its addresses on the way in and out", (sandbox) => {
  const { call, container } = sandbox;
  ip(
    container,
    "link add eth0 type veth peer name peer0",
    "addr add 10.1.2.2/24 dev eth0",
    ...["fd00:1::2/64 dev eth0", "fd00:2::2/64 dev eth0 nodad noprefixroute", "fec0::2/64 dev eth0"].map((each) =>
      `addr add ${each}`
    ),
  );
  const shown = () =>
    ipShow(container, "addr", "show", "dev", "eth0")[0].addr_info
      .map(({ local, tentative, nodad, noprefixroute }: Record<string, unknown>) => ({
        local,
        tentative,
        nodad,
        noprefixroute,
      })).sort((a: { local: string }, b: { local: string }) => a.local < b.local ? -1 : 1);
  const before = shown();
  expect(before).toHaveLength(4);
  call(vrf, "ADD", red);
  expect([masterOf(container, "eth0"), shown()]).toEqual(["red", before]);
  call(vrf, "DEL", red);
  expect([masterOf(container, "eth0"), shown()]).toEqual([undefined, before]);
});

vrfTest(
  "behind another plugin in a list: its CHECK finds the routes where they are now, and both can be removed",
  (sandbox) => {
    const { call, container } = sandbox;
    const addressesOf = [
      { address: "10.1.2.2/24", gateway: "10.1.2.1" },
      { address: "fd00:1::2/64", gateway: "fd00:1::1" },
    ];
    const first = { ipam: { type: "static", addresses: addressesOf, routes: [{ dst: "0.0.0.0/0" }, { dst: "::/0" }] } };
    const result: Result = call(ptp, "ADD", first);
    const after = { prevResult: { cniVersion: "1.1.0", ...result } };
    expect(call(vrf, "ADD", { vrfname: "red", ...after }) as unknown).toEqual(result);
    call(vrf, "CHECK", { vrfname: "red", ...after });
    call(ptp, "CHECK", { ...first, ...after });
    for (const each of ["10.1.2.1", "fd00:1::1"]) {
      runInNetns(
        container,
        "busybox",
        "ping",
        "-c1",
        "-W20",
        "-I",
        "red",
        each,
      );
    }
    call(vrf, "DEL", { vrfname: "red", ...after });
    call(ptp, "DEL", { ...first, ...after });
    expect(linkNames(container)).toEqual(["lo"]);
  },
);
