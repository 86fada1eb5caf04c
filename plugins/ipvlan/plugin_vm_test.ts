/** The ipvlan plugin on a kernel that has links of this kind: not that of every machine. */
import { expect } from "bun:test";
import type { Netns } from "../../ffi/netns/netns.ts";
import { askUntilAnswered, ipShow, linkNames, runShellInNetns } from "../../testing/netns.ts";
import ipvlan from "./plugin.ts";
import { withPrevResult } from "../../testing/sandbox.ts";
import { expectReached, ipamGiving, lanTest, newAttacher, startProcessInNetns, statusCode } from "../../testing/lan.ts";
import type { Result } from "../../spec/result.ts";

const MASTER = { master: "up0" };
const linkOf = (netns: Netns) => ipShow(netns, "link", "show", "eth0")[0];
const modeOf = (netns: Netns) => linkOf(netns).linkinfo.info_data.mode;
const attach = newAttacher(ipvlan, MASTER);

lanTest("the container speaks to machines on the wire and to its siblings, in both families", (segment) => {
  const { call, container, outside, host } = segment;
  const config = { ...MASTER, ...ipamGiving("10.5.0.2/24", "fd05::2/64") };
  const result = call(ipvlan, "ADD", config);
  const link = linkOf(container);
  expect(link).toMatchObject({ mtu: 1500, ifalias: "cni:test c1 eth0", linkinfo: { info_kind: "ipvlan" } });
  expect(modeOf(container)).toBe("l2");
  expect(link.address).toBe(ipShow(host, "link", "show", "up0")[0].address);
  expect(result).toEqual({
    interfaces: [{ name: "eth0", mac: link.address, sandbox: container.path }],
    ips: [{ address: "10.5.0.2/24", interface: 0 }, { address: "fd05::2/64", interface: 0 }],
  } as unknown as Result);
  const second = attach(segment, "c2", ipamGiving("10.5.0.3/24"));
  expectReached(container, ["10.5.0.1", "fd05::1", "10.5.0.3"], ["10.5.0.1", "fd05::1", "10.5.0.3"]);
  expectReached(second.netns, ["10.5.0.1", "10.5.0.2"], ["10.5.0.1", "10.5.0.2"]);
  expectReached(outside, ["10.5.0.2", "fd05::2"], ["10.5.0.2", "fd05::2"]);
  call(ipvlan, "CHECK", withPrevResult(config, result));
});

for (const mode of ["l3", "l3s"]) {
  lanTest(`mode ${mode}: the wire is expectReached by routes`, (segment) => {
    const { call, container, outside, host } = segment;
    const routes = [{ dst: "0.0.0.0/0" }];
    const config = { ...MASTER, mode, ipam: { type: "fixed", ips: ["10.77.0.2/24"], routes } };
    const result = call(ipvlan, "ADD", config);
    expect(modeOf(container)).toBe(mode);
    call(ipvlan, "CHECK", withPrevResult(config, result));
    expect(() => call(ipvlan, "CHECK", withPrevResult({ ...config, mode: "l2" }, result))).toThrow(
      `mode of "eth0" is "${mode}", expected "l2"`,
    );
    // Of these modes the master routes what the containers send, and answers for none of them.
    runShellInNetns(host, "ip addr add 10.5.0.7/24 dev up0");
    runShellInNetns(outside, "ip route add 10.77.0.0/24 via 10.5.0.7");
    expectReached(container, ["10.5.0.1"], ["10.5.0.1"]);
  });
}

lanTest("mtu: the master's, or less", (segment) => {
  runShellInNetns(segment.host, "ip link set up0 mtu 1400");
  expect(linkOf(attach(segment, "c1", ipamGiving("10.5.0.2/24")).netns).mtu).toBe(1400);
  expect(linkOf(attach(segment, "c2", { mtu: 1300, ...ipamGiving("10.5.0.3/24") }).netns).mtu).toBe(1300);
  expect(() => attach(segment, "c3", { mtu: 1401, ...ipamGiving("10.5.0.4/24") })).toThrow(
    'mtu must be at most 1400, the MTU of its master "up0": got 1401',
  );
});

lanTest("linkInContainer takes a master of the container", ({ call, container }) => {
  runShellInNetns(container, "ip link add up1 up type veth peer name far; ip link set far up");
  const config = { master: "up1", linkInContainer: true, ...ipamGiving("10.5.0.2/24") };
  const result = call(ipvlan, "ADD", config);
  expect(linkOf(container).link).toBe("up1");
  call(ipvlan, "CHECK", withPrevResult(config, result));
  call(ipvlan, "DEL", config);
  expect(linkNames(container)).toEqual(["far", "lo", "up1"]);
});

lanTest("on an ipvlan that the container has it is its sibling", ({ call, container }) => {
  call(ipvlan, "ADD", { ...MASTER, ...ipamGiving("10.5.0.2/24") });
  const own = { master: "eth0", linkInContainer: true, ...ipamGiving("10.5.0.3/24") };
  const options = { ifname: "net1" };
  call(ipvlan, "CHECK", withPrevResult(own, call(ipvlan, "ADD", own, options)), options);
  using home = startProcessInNetns(container);
  expect(() => call(ipvlan, "ADD", own, { ifname: "net2" })).toThrow(
    `"up0" is used by container "c1" (network "test", interface "net1") in "${home.place}"`,
  );
  expect(() => call(ipvlan, "ADD", { ...own, ...ipamGiving("10.5.0.2/24") }, { ifname: "net2" })).toThrow(
    'Cannot use address 10.5.0.2/24: master "eth0" has it',
  );
  call(ipvlan, "DEL", own, options);
  expect(linkNames(container)).toEqual(["eth0", "lo"]);
});

lanTest(
  "behind another plugin, master and addresses are those of its result",
  ({ call, container, host, ipamCalls }) => {
    const prevResult = {
      cniVersion: "1.0.0",
      interfaces: [{ name: "up0" }],
      ips: [{ address: "10.5.0.2/24", gateway: "10.5.0.1", interface: 0, version: "4" }],
      routes: [{ dst: "0.0.0.0/0" }],
      dns: { nameservers: ["192.0.2.53"] },
    };
    const result = call(ipvlan, "ADD", { prevResult });
    expect(result).toEqual({
      interfaces: [{ name: "eth0", mac: linkOf(container).address, sandbox: container.path }],
      ips: [{ address: "10.5.0.2/24", gateway: "10.5.0.1", interface: 0 }],
      routes: [{ dst: "0.0.0.0/0" }],
      dns: { nameservers: ["192.0.2.53"] },
    } as unknown as Result);
    expect(ipShow(container, "route", "show", "default")[0].gateway).toBe("10.5.0.1");
    call(ipvlan, "CHECK", withPrevResult({}, result));
    call(ipvlan, "DEL", withPrevResult({}, result));
    expect(ipamCalls).toEqual([]);
    const two = { ...prevResult, interfaces: [{ name: "up0" }, { name: "up1" }] };
    expect(() => call(ipvlan, "ADD", { prevResult: two })).toThrow("prevResult names 2 interfaces");
    call(ipvlan, "DEL", { prevResult: two });
    expect(() => call(ipvlan, "ADD", MASTER)).toThrow("ipam.type must be the name of an IPAM plugin");
    expect(linkNames(container)).toEqual(["lo"]);
    // A master of the configuration wins.
    runShellInNetns(host, "ip link add up1 up type veth peer name far");
    const named = call(ipvlan, "ADD", { ...MASTER, prevResult: two });
    call(ipvlan, "CHECK", withPrevResult(MASTER, named));
  },
);

lanTest("without master, the link of the default route is taken, and CHECK needs none either", ({ call, host }) => {
  const config = ipamGiving("10.6.0.2/24");
  expect(() => call(ipvlan, "ADD", config)).toThrow("the host has no default route to derive it from");
  runShellInNetns(host, "ip addr add 10.5.0.7/24 dev up0; ip route add default via 10.5.0.1");
  const result = call(ipvlan, "ADD", config);
  runShellInNetns(host, "ip route del default");
  call(ipvlan, "CHECK", withPrevResult(config, result));
  call(ipvlan, "DEL", config);
});

lanTest("CHECK accepts /32 and names what is otherwise", ({ call, container, host, ipamCalls }) => {
  runShellInNetns(host, "ip link add other up type veth peer name far");
  const config = { ...MASTER, ...ipamGiving("10.5.0.2/32") };
  const result = call(ipvlan, "ADD", config);
  const check = (change: object = {}) => call(ipvlan, "CHECK", withPrevResult({ ...config, ...change }, result));
  check();
  expect(() => check({ mode: "l3" })).toThrow('mode of "eth0" is "l2", expected "l3"');
  expect(() => check({ master: "other" })).toThrow('master of "eth0" is "up0", expected "other"');
  expect(() => check({ mtu: 1300 })).toThrow('MTU of "eth0" is 1500, expected 1300');
  runShellInNetns(container, "ip addr del 10.5.0.2/32 dev eth0");
  expect(() => check()).toThrow('"eth0" lacks address 10.5.0.2/32');
  expect(ipamCalls).toEqual(["ADD", "CHECK", "CHECK", "CHECK", "CHECK", "CHECK"]);
});

lanTest("DEL needs neither master nor namespace nor default route, and leaves what is not its own", (segment) => {
  const { call, container, host, ipamCalls } = segment;
  const config = { ...MASTER, ...ipamGiving("10.5.0.2/24") };
  call(ipvlan, "ADD", config);
  call(ipvlan, "DEL", { ...ipamGiving("10.5.0.2/24"), mode: "nosuch", mtu: -5 });
  expect(linkNames(container)).toEqual(["lo"]);
  runShellInNetns(host, "ip link del up0");
  call(ipvlan, "DEL", config);
  call(ipvlan, "DEL", config, { netns: null });
  call(ipvlan, "DEL", { ...config, linkInContainer: true }, { netns: "/run/netns/gone" });
  expect(ipamCalls).toEqual(["ADD", "DEL", "DEL", "DEL", "DEL"]);
  runShellInNetns(container, "ip link add eth0 type veth peer name far");
  call(ipvlan, "DEL", config);
  expect(linkNames(container)).toEqual(["eth0", "far", "lo"]);
});

lanTest("an ADD that fails leaves nothing", ({ call, container, ipamCalls }) => {
  expect(() => call(ipvlan, "ADD", { ...MASTER, ...ipamGiving() })).toThrow("returned no address");
  const routes = [{ dst: "10.99.0.0/16", gw: "192.0.2.1" }];
  expect(() => call(ipvlan, "ADD", { ...MASTER, ipam: { type: "fixed", ips: ["10.5.0.2/24"], routes } })).toThrow(
    "10.99.0.0/16",
  );
  expect(linkNames(container)).toEqual(["lo"]);
  expect(ipamCalls).toEqual(["ADD", "DEL", "ADD", "DEL"]);
  runShellInNetns(container, "ip link add eth0 type veth peer name far");
  expect(() => call(ipvlan, "ADD", { ...MASTER, ...ipamGiving("10.5.0.2/24") })).toThrow(
    "the container has an interface of that name",
  );
});

lanTest("a master that something else has is refused with it", (segment) => {
  const { call, host } = segment;
  runShellInNetns(host, "ip link add link up0 name mine type macvlan");
  const config = { ...MASTER, ...ipamGiving("10.5.0.2/24") };
  expect(() => call(ipvlan, "ADD", config)).toThrow('"up0" is used by macvlan "mine"');
  runShellInNetns(host, "ip link del mine; ip link add br7 type bridge; ip link set up0 master br7");
  expect(() => call(ipvlan, "ADD", config)).toThrow('"up0" is used by bridge "br7", of which it is a port');
});

lanTest("an address that another machine has is refused with its MAC address, on IPv4 and IPv6", (segment) => {
  const { call, container, outside, ipamCalls } = segment;
  const mac = ipShow(outside, "link", "show", "eth0")[0].address;
  askUntilAnswered(container);
  expect(() => call(ipvlan, "ADD", { ...MASTER, ...ipamGiving("10.5.0.1/24") })).toThrow(
    `Cannot use address 10.5.0.1 on "eth0" of master "up0": in use by another host on the network, MAC address ${mac}`,
  );
  expect(() => call(ipvlan, "ADD", { ...MASTER, ...ipamGiving("fd05::1/64") })).toThrow(
    'Cannot use address fd05::1/64 on "eth0" of master "up0": in use by another host on the network',
  );
  expect(linkNames(container)).toEqual(["lo"]);
  expect(ipamCalls).toEqual(["ADD", "DEL", "ADD", "DEL"]);
});

lanTest("an address that a sibling or the master has is refused with its holder", (segment) => {
  const first = attach(segment, "c1", ipamGiving("10.5.0.2/24", "fd05::2/64"));
  using home = startProcessInNetns(first.netns);
  const holder = `"up0" is used by container "c1" (network "test", interface "eth0") in "${home.place}"`;
  for (const each of ["10.5.0.2/24", "fd05::2/64"]) {
    expect(() => attach(segment, "c2", ipamGiving(each))).toThrow(holder);
  }
  runShellInNetns(segment.host, "ip addr add 10.5.0.7/24 dev up0");
  expect(() => attach(segment, "c2", ipamGiving("10.5.0.7/24"))).toThrow(
    'Cannot use address 10.5.0.7/24: master "up0" has it',
  );
});

lanTest("machines on the wire learn at once that an address has moved", ({ call, outside }) => {
  runShellInNetns(outside, "ip neigh add 10.5.0.2 lladdr 0a:00:00:00:00:99 dev eth0 nud stale");
  const { interfaces } = call(ipvlan, "ADD", { ...MASTER, ...ipamGiving("10.5.0.2/24") });
  expect(ipShow(outside, "neigh", "show", "10.5.0.2")[0].lladdr).toBe(interfaces![0]!.mac);
});

lanTest("STATUS tells whether there is a master", (segment) => {
  const codeOf = (config: object) => statusCode(segment, ipvlan, config);
  expect(codeOf(MASTER)).toBe(0);
  expect(codeOf({ master: "nosuch" })).toBe(50);
  // Behind another plugin, nothing can be told before its result.
  expect(codeOf({})).toBe(0);
});
