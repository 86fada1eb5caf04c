/** On a kernel that has dummy links: not that of every machine. */
import { expect } from "bun:test";
import { parseCidr } from "../../ffi/address.ts";
import { ipShow, linkNames, ping, runInNetns } from "../../testing/netns.ts";
import dummy from "./plugin.ts";
import { type Sandbox, sandboxTest, withPrevResult } from "../../testing/sandbox.ts";
import { newFixedIpam } from "../../testing/fixed_ipam.ts";

const { fixed, counts } = newFixedIpam();
const ipam = (addresses: string[], more: object = {}) => ({
  type: "fixed",
  result: { ips: addresses.map((each) => ({ address: parseCidr(each) })), ...more },
});
const both = ipam(["10.1.2.2/24", "10.9.0.1/32", "fd00:1::2/64"], {
  routes: [{ dst: "192.0.2.0/24" }, { dst: "198.51.100.0/24", table: 500 }, { dst: "2001:db8::/32" }],
});

const dummyTest = (name: string, body: (sandbox: Sandbox) => void) => sandboxTest(name, [fixed], body);

dummyTest(
  "dummy ADD makes an interface that holds addresses and routes, whatever the host has",
  ({ call, host, container }) => {
    runInNetns(host, "ip", "link", "add", "eth0", "type", "dummy");
    const result = call(dummy, "ADD", { ipam: both });
    const [shownLink] = ipShow(container, "addr", "show", "eth0");
    expect(shownLink.linkinfo.info_kind).toBe("dummy");
    expect(shownLink.flags).toContain("UP");
    expect(result.interfaces as unknown[]).toEqual([{ name: "eth0", mac: shownLink.address, sandbox: container.path }]);
    expect(result.ips!.map((each) => each.interface)).toEqual([0, 0, 0]);
    for (const each of ["10.1.2.2", "10.9.0.1", "fd00:1::2"]) {
      runInNetns(container, "ip", "link", "set", "lo", "up");
      ping(container, each);
    }
    expect(ipShow(container, "route", "show", "192.0.2.0/24")).toMatchObject([{ dev: "eth0" }]);
    expect(ipShow(container, "-6", "route", "show", "2001:db8::/32")).toMatchObject([{ dev: "eth0" }]);
    expect(ipShow(container, "route", "show", "table", "500")).toMatchObject([{ dst: "198.51.100.0/24", dev: "eth0" }]);
  },
);

dummyTest("dummy CHECK passes after ADD and names what has changed since", ({ call, container }) => {
  const config = { ipam: both };
  const result = call(dummy, "ADD", config);
  const check = () => call(dummy, "CHECK", withPrevResult(config, result));
  check();
  const drift: [string, string, string][] = [
    ["addr del 10.9.0.1/32 dev eth0", "addr add 10.9.0.1/32 dev eth0", '"eth0" lacks address 10.9.0.1/32'],
    ["route del 192.0.2.0/24", "route add 192.0.2.0/24 dev eth0", '"eth0" lacks the route to 192.0.2.0/24'],
    [
      "route del 198.51.100.0/24 table 500",
      "route add 198.51.100.0/24 dev eth0 table 500",
      '"eth0" lacks the route to 198.51.100.0/24',
    ],
    ["link set eth0 address 0a:00:00:00:00:09", `link set eth0 address ${result.interfaces![0]!.mac}`, "MAC address"],
    ["link set eth0 down", "", 'administrative state of "eth0" is "down"'],
  ];
  for (const [change, back, message] of drift) {
    runInNetns(container, "ip", ...change.split(" "));
    expect(check, change).toThrow(message);
    if (back) runInNetns(container, "ip", ...back.split(" "));
    if (back) check();
  }
  runInNetns(container, "ip", "link", "del", "eth0");
  expect(check).toThrow('"eth0" is missing');
  runInNetns(
    container,
    "sh",
    "-ec",
    `ip link add eth0 address ${result.interfaces![0]!.mac} type bridge; ip link set eth0 up`,
  );
  expect(check).toThrow('"eth0"');
  expect(() => call(dummy, "CHECK", config)).toThrow("prevResult is missing");
});

dummyTest("dummy ADD that fails leaves nothing and gives its addresses back", ({ call, container }) => {
  const cases: [object, string][] = [
    [ipam([]), "returned no address"],
    [ipam(["10.1.2.2/24"], { routes: [{ dst: "192.0.2.0/24", gw: "172.16.0.1" }] }), "add route to 192.0.2.0/24"],
    [ipam(["10.1.2.2/24", "10.1.2.2/24"]), "add address 10.1.2.2/24"],
  ];
  for (const [failing, message] of cases) {
    const { add, del } = counts;
    expect(() => call(dummy, "ADD", { ipam: failing })).toThrow(message);
    expect(linkNames(container)).toEqual(["lo"]);
    expect(counts.del - del).toBe(counts.add - add);
  }
  runInNetns(container, "ip", "link", "add", "eth0", "type", "bridge");
  expect(() => call(dummy, "ADD", { ipam: both })).toThrow("the container has an interface of that name");
  expect(linkNames(container)).toEqual(["eth0", "lo"]);
});

dummyTest("dummy needs IPAM, except to be removed", ({ call }) => {
  for (const verb of ["ADD", "CHECK", "STATUS"] as const) {
    expect(() => call(dummy, verb, {})).toThrow("ipam.type must be the name of an IPAM plugin");
  }
  call(dummy, "DEL", {});
  const { status } = counts;
  call(dummy, "STATUS", { ipam: both });
  expect(counts.status).toBe(status + 1);
});

dummyTest(
  "dummy DEL removes its interface and no other, gives addresses back, and can be repeated",
  ({ call, container }) => {
    for (const netns of [container, null, "/run/netns/absent"]) {
      const { del } = counts;
      if (netns === container) call(dummy, "ADD", { ipam: both });
      call(dummy, "DEL", { ipam: both }, { netns });
      call(dummy, "DEL", { ipam: both }, { netns });
      expect(counts.del).toBe(del + 2);
      expect(linkNames(container)).toEqual(["lo"]);
    }
    runInNetns(container, "ip", "link", "add", "eth0", "type", "bridge");
    call(dummy, "DEL", { ipam: both });
    expect(linkNames(container)).toEqual(["eth0", "lo"]);
  },
);

dummyTest("dummy takes the DNS settings of the configuration, or else those of IPAM", ({ call }) => {
  const config = { ipam: ipam(["10.1.2.2/24"], { dns: { nameservers: ["10.1.2.1"] } }) };
  expect(call(dummy, "ADD", config).dns).toEqual({ nameservers: ["10.1.2.1"] });
  call(dummy, "DEL", config);
  expect(call(dummy, "ADD", { ...config, dns: { domain: "a.example" } }).dns).toEqual({ domain: "a.example" });
});
