/** The ipvlan plugin on a kernel that has links of this kind: not that of every machine. */
import { expect } from "bun:test";
import type { Netns } from "../../ffi/netns/netns.ts";
import { ipShow, linkNames, runShellInNetns } from "../../testing/netns.ts";
import { testLinkOnMaster } from "../../testing/link_on_master.ts";
import ipvlan from "./plugin.ts";
import { withPrevResult } from "../../testing/sandbox.ts";
import { expectReached, ipamGiving, lanTest, newAttacher, startProcessInNetns, statusCode } from "../../testing/lan.ts";
import type { Result } from "../../spec/result.ts";

const MASTER = { master: "up0" };
const linkOf = (netns: Netns) => ipShow(netns, "link", "show", "eth0")[0];
const modeOf = (netns: Netns) => linkOf(netns).linkinfo.info_data.mode;
const attach = newAttacher(ipvlan, MASTER);

testLinkOnMaster(ipvlan);

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
  lanTest(`mode ${mode}: the wire is reached by routes`, (segment) => {
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

lanTest("a master that something else has is refused with it", (segment) => {
  const { call, host } = segment;
  runShellInNetns(host, "ip link add link up0 name mine type macvlan");
  const config = { ...MASTER, ...ipamGiving("10.5.0.2/24") };
  expect(() => call(ipvlan, "ADD", config)).toThrow('"up0" is used by macvlan "mine"');
  runShellInNetns(host, "ip link del mine; ip link add br7 type bridge; ip link set up0 master br7");
  expect(() => call(ipvlan, "ADD", config)).toThrow('"up0" is used by bridge "br7", of which it is a port');
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

lanTest("behind another plugin, STATUS can tell nothing before its result", (segment) => {
  expect(statusCode(segment, ipvlan, {})).toBe(0);
});
