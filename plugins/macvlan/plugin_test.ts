import { expect } from "bun:test";
import { expectReached, ipamGiving, lanTest, newAttacher, startProcessInNetns, statusCode } from "../../testing/lan.ts";
import { testLinkOnMaster } from "../../testing/link_on_master.ts";
import macvlan from "./plugin.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { ipShow, linkNames, ping, runShellInNetns } from "../../testing/netns.ts";
import { withPrevResult } from "../../testing/sandbox.ts";
import type { Result } from "../../spec/result.ts";

const MASTER = { master: "up0" };
const dataOf = (netns: Netns) => ipShow(netns, "link", "show", "eth0")[0].linkinfo;
const attach = newAttacher(macvlan, MASTER);

testLinkOnMaster(macvlan);

lanTest("the container speaks to machines on the wire and to its siblings, in both families", (segment) => {
  const { call, container, outside, host } = segment;
  const result = call(macvlan, "ADD", { ...MASTER, ...ipamGiving("10.5.0.2/24", "fd05::2/64") });
  const [link] = ipShow(container, "link", "show", "eth0");
  expect(link).toMatchObject({ linkinfo: { info_kind: "macvlan", info_data: { mode: "bridge" } }, mtu: 1500 });
  expect(result).toEqual({
    interfaces: [{ name: "eth0", mac: link.address, sandbox: container.path }],
    ips: [{ address: "10.5.0.2/24", interface: 0 }, { address: "fd05::2/64", interface: 0 }],
  } as unknown as Result);
  expect(link.ifalias).toBe("cni:test c1 eth0");
  const second = attach(segment, "c2", ipamGiving("10.5.0.3/24"));
  expectReached(container, ["10.5.0.1", "fd05::1", "10.5.0.3"], ["10.5.0.1", "fd05::1", "10.5.0.3"]);
  expectReached(second.netns, ["10.5.0.1", "10.5.0.2"], ["10.5.0.1", "10.5.0.2"]);
  expectReached(outside, ["10.5.0.2", "fd05::2"], ["10.5.0.2", "fd05::2"]);
  expect(linkNames(host)).toEqual(["lo", "up0"]);
});

lanTest("each mode is the kernel's; private containers do not reach each other", (segment) => {
  for (const mode of ["bridge", "private", "vepa"]) {
    const { netns } = attach(segment, mode, { mode });
    expect(dataOf(netns).info_data.mode).toBe(mode);
  }
  const first = attach(segment, "c1", { mode: "private", ...ipamGiving("10.5.0.2/24") });
  attach(segment, "c2", { mode: "private", ...ipamGiving("10.5.0.3/24") });
  expectReached(first.netns, ["10.5.0.1", "10.5.0.3"], ["10.5.0.1"]);
  const empty = attach(segment, "c3", { mode: "" });
  expect(dataOf(empty.netns).info_data.mode).toBe("bridge");
});

lanTest("passthru has the master for itself, with any address, and gives the address back", (segment) => {
  const { call, container, host } = segment;
  const before = ipShow(host, "link", "show", "up0")[0].address;
  const config = { ...MASTER, mode: "passthru", mac: "0a:00:00:00:00:07", ...ipamGiving("10.5.0.2/24") };
  const result = call(macvlan, "ADD", config);
  expect(result.interfaces![0]!.mac as string).toBe("0a:00:00:00:00:07");
  expect(ipShow(container, "link", "show", "eth0")[0].address).toBe("0a:00:00:00:00:07");
  expectReached(container, ["10.5.0.1"], ["10.5.0.1"]);
  call(macvlan, "CHECK", withPrevResult(config, result));
  using home = startProcessInNetns(container);
  expect(() => attach(segment, "c2", {})).toThrow(
    `"up0" is used by container "c1" (network "test", interface "eth0") in "${home.place}"`,
  );
  call(macvlan, "DEL", config);
  expect(ipShow(host, "link", "show", "up0")[0].address).toBe(before);
});

lanTest("mtu: the master's, or less", (segment) => {
  runShellInNetns(segment.host, "ip link set up0 mtu 1400");
  const mtuOf = (netns: Netns) => ipShow(netns, "link", "show", "eth0")[0].mtu;
  const first = attach(segment, "c1", {});
  expect(mtuOf(first.netns)).toBe(1400);
  expect(mtuOf(attach(segment, "c2", { mtu: 1300 }).netns)).toBe(1300);
  expect(() => attach(segment, "c3", { mtu: 1401 })).toThrow(
    'Cannot use network "test": mtu must be at most 1400, the MTU of its master "up0": got 1401',
  );
  expect(() => attach(segment, "c3", { mtu: -1 })).toThrow("mtu must be a whole number from 0");
  // Nobody is to blame for it but who wants it.
  using _home = startProcessInNetns(first.netns);
  expect(() => attach(segment, "c3", { mtu: 67 })).toThrow(
    /^Cannot create "eth0" on master "up0": Invalid argument \(EINVAL, mtu less than device minimum\)$/,
  );
});

lanTest(
  "the MAC address: the runtime's before the hint's before that of CNI_ARGS before the configuration's",
  (segment) => {
    const [runtime, hint, args, own] = [1, 2, 3, 4].map((n) => `0a:00:00:00:00:0${n}`);
    const wanted = {
      mac: own!,
      args: { cni: { mac: hint! } },
      runtimeConfig: { mac: runtime! },
    };
    const CNI_ARGS = `IgnoreUnknown=true;MAC=${args};K8S_POD_NAME=x`;
    const macOf = (config: object, env: Record<string, string>) => {
      const { netns, result } = attach(segment, `c${Object.keys(config).length}${Object.keys(env).length}`, config, {
        env,
      });
      const actual = ipShow(netns, "link", "show", "eth0")[0].address;
      expect(result.interfaces![0]!.mac).toBe(actual);
      segment.call(macvlan, "CHECK", withPrevResult({ ...MASTER, ...config }, result), { netns, env });
      runShellInNetns(netns, "ip link del eth0");
      return actual;
    };
    expect(macOf(wanted, { CNI_ARGS })).toBe(runtime);
    expect(macOf({ mac: own, args: wanted.args }, { CNI_ARGS })).toBe(hint);
    expect(macOf({ mac: own }, { CNI_ARGS })).toBe(args);
    expect(macOf({ mac: own }, {})).toBe(own);
    expect(() => attach(segment, "c9", { mac: "x" })).toThrow("mac must be a MAC address");
    expect(() => attach(segment, "c9", {}, { env: { CNI_ARGS: "MAC=x" } })).toThrow("CNI_ARGS MAC");
  },
);

lanTest("a MAC address that is on the wire of the master already is refused with its holder", (segment) => {
  const mac = "0a:00:00:00:00:07";
  const first = attach(segment, "c1", { mac });
  using home = startProcessInNetns(first.netns);
  expect(() => attach(segment, "c2", { mac })).toThrow(
    `Cannot set "eth0" up: Address already in use (EADDRINUSE): "up0" is used by container "c1" (network "test", interface "eth0") in "${home.place}"`,
  );
  const own = ipShow(segment.host, "link", "show", "up0")[0].address;
  expect(() => attach(segment, "c3", { mac: own })).toThrow(
    `Cannot set "eth0" up: its master "up0" has MAC address ${own} too`,
  );
});

lanTest("bcqueuelen is set, and compared by CHECK", ({ call, container }) => {
  const config = { ...MASTER, bcqueuelen: 321 };
  const result = call(macvlan, "ADD", config);
  expect(dataOf(container).info_data.bcqueuelen).toBe(321);
  call(macvlan, "CHECK", withPrevResult(config, result));
  expect(() => call(macvlan, "CHECK", withPrevResult({ ...MASTER, bcqueuelen: 5 }, result))).toThrow(
    'bcqueuelen of "eth0" is 321, expected 5',
  );
});

lanTest("on a macvlan the container's is its sibling, with the same users and the same wire", (segment) => {
  const { call, host, container, ipamCalls } = segment;
  runShellInNetns(
    host,
    "ip link add mv0 link up0 up mtu 1400 type macvlan mode bridge; ip addr add 10.5.0.7/24 dev mv0",
  );
  const config = { master: "mv0", ...ipamGiving("10.5.0.2/24") };
  const first = call(macvlan, "ADD", config);
  call(macvlan, "CHECK", withPrevResult(config, first));
  call(macvlan, "CHECK", withPrevResult({ ...config, master: "up0" }, first));
  runShellInNetns(host, "ip link add other up type veth peer name far");
  expect(() => call(macvlan, "CHECK", withPrevResult({ ...config, master: "other" }, first))).toThrow(
    'master of "eth0" is "up0", expected "other"',
  );
  expect(() => attach(segment, "c2", { ...config, mtu: 1401 })).toThrow('at most 1400, the MTU of its master "mv0"');
  expect(() => attach(segment, "c2", { ...config, ...ipamGiving("10.5.0.7/24") })).toThrow(
    'Cannot use address 10.5.0.7/24: master "mv0" has it',
  );

  // The one that the container has from the host, as the next one's master.
  const own = { master: "eth0", linkInContainer: true, ...ipamGiving("10.5.0.3/24") };
  const options = { ifname: "net1" };
  const second = call(macvlan, "ADD", own, options);
  call(macvlan, "CHECK", withPrevResult(own, second), options);
  runShellInNetns(container, "ip route add default via 10.5.0.1");
  call(macvlan, "CHECK", withPrevResult({ ...own, master: "" }, second), options);
  expectReached(container, ["10.5.0.1"], ["10.5.0.1"]);
  const mac = second.interfaces![0]!.mac!;
  using home = startProcessInNetns(container);
  const net1 = `container "c1" (network "test", interface "net1") in "${home.place}"`;
  const again = (change: object) => call(macvlan, "ADD", { ...own, ...change }, { ifname: "net2" });
  expect(() => again({ mac, ...ipamGiving("10.5.0.4/24") })).toThrow(`"up0" is used by ${net1}`);
  expect(() => again({})).toThrow(`Cannot use address 10.5.0.3 on "net2" of master "up0": in use by ${net1}`);
  expect(() => again({ mode: "passthru", ...ipamGiving("10.5.0.4/24") })).toThrow(net1);
  expect(linkNames(container)).toEqual(["eth0", "lo", "net1"]);
  for (const ifname of ["net1", "eth0"]) call(macvlan, "DEL", own, { ifname });
  expect(linkNames(container)).toEqual(["lo"]);
  expect(ipamCalls.filter((each) => each === "ADD").length).toBe(ipamCalls.filter((each) => each === "DEL").length);
});

lanTest("without master, the link of the best default route is taken", (segment) => {
  const { call, host, container } = segment;
  const config = ipamGiving("10.6.0.2/24");
  expect(() => call(macvlan, "ADD", config)).toThrow(
    "master must be given, since the host has no default route to derive it from: got nothing",
  );
  runShellInNetns(
    host,
    "for n in 1 2; do ip link add up$n up type veth peer name far$n; ip link set far$n up; done",
    "ip addr add 10.7.0.1/24 dev up1; ip addr add 10.8.0.1/24 dev up2; ip addr add fd08::1/64 dev up2 nodad",
    "ip route add unreachable default metric 1",
    "ip -6 route add default via fd08::9 dev up2",
  );
  const masterOf = () => {
    const result = call(macvlan, "ADD", config);
    call(macvlan, "CHECK", withPrevResult(config, result));
    const { link_index } = ipShow(container, "link", "show", "eth0")[0];
    call(macvlan, "DEL", config);
    return ipShow(host, "link", "show").find(({ ifindex }) => ifindex === link_index).ifname;
  };
  expect(masterOf()).toBe("up2");
  runShellInNetns(host, "ip route add default via 10.8.0.9 metric 300; ip route add default via 10.7.0.9 metric 200");
  expect(masterOf()).toBe("up1");
  runShellInNetns(host, "ip route add default metric 100 nexthop via 10.8.0.9 nexthop via 10.7.0.9");
  expect(masterOf()).toBe("up2");
});

lanTest("without IPAM the link is up and bare, also for CHECK", ({ call, container, ipamCalls }) => {
  const config = { ...MASTER, dns: { nameservers: ["192.0.2.53"] } };
  const result = call(macvlan, "ADD", config);
  expect(result).toEqual({
    interfaces: [{ name: "eth0", mac: expect.any(String), sandbox: container.path }],
    dns: { nameservers: ["192.0.2.53"] },
  } as unknown as Result);
  expect(ipShow(container, "link", "show", "eth0")[0].flags).toContain("UP");
  call(macvlan, "CHECK", withPrevResult(config, result));
  runShellInNetns(container, "ip link set eth0 down");
  expect(() => call(macvlan, "CHECK", withPrevResult(config, result))).toThrow(
    'administrative state of "eth0" is "down"',
  );
  expect(ipamCalls).toEqual([]);
});

lanTest("CHECK accepts /32, routes of other tables and metrics, and asks IPAM", ({ call, ipamCalls }) => {
  const routes = [{ dst: "10.5.0.1/32", scope: 253 }, { dst: "0.0.0.0/0", gw: "10.5.0.1", table: 5000, priority: 7 }];
  const config = { ...MASTER, ipam: { type: "fixed", ips: ["10.5.0.2/32"], routes } };
  const result = call(macvlan, "ADD", config);
  call(macvlan, "CHECK", withPrevResult(config, result));
  expect(ipamCalls).toEqual(["ADD", "CHECK"]);
});

lanTest("CHECK names what is otherwise than ADD left it", ({ call, container, host }) => {
  runShellInNetns(host, "ip link add other up type veth peer name far");
  const config = { ...MASTER, mtu: 1400, ...ipamGiving("10.5.0.2/24") };
  const result = call(macvlan, "ADD", config);
  const check = (change: object = {}) => call(macvlan, "CHECK", withPrevResult({ ...config, ...change }, result));
  check();
  expect(() => check({ mode: "vepa" })).toThrow('mode of "eth0" is "bridge", expected "vepa"');
  expect(() => check({ master: "other" })).toThrow('master of "eth0" is "up0", expected "other"');
  expect(() => check({ master: "gone" })).toThrow('the host has no master "gone" for "eth0"');
  expect(() => check({ mtu: 1300 })).toThrow('MTU of "eth0" is 1400, expected 1300');
  expect(() => check({ mac: "0a:00:00:00:00:09" })).toThrow('MAC address of "eth0"');
  expect(() => call(macvlan, "CHECK", config)).toThrow("prevResult is missing");
  runShellInNetns(container, "ip addr del 10.5.0.2/24 dev eth0");
  expect(() => check()).toThrow('"eth0" lacks address 10.5.0.2/24');
  runShellInNetns(container, "ip link del eth0; ip link add eth0 type veth peer name far");
  runShellInNetns(
    container,
    `ip link set eth0 address ${result.interfaces![0]!.mac} mtu 1400 up; ip addr add 10.5.0.2/24 dev eth0`,
  );
  expect(() => check()).toThrow('kind of "eth0" is "veth", expected "macvlan"');
});

lanTest("DEL leaves alone what another container has that came to the path of the namespace", (segment) => {
  const { call, container } = segment;
  const second = attach(segment, "c2", ipamGiving("10.5.0.3/24"));
  call(macvlan, "DEL", { ...MASTER, ...ipamGiving("10.5.0.2/24") }, { containerId: "c1", netns: second.netns });
  expect(linkNames(second.netns)).toEqual(["eth0", "lo"]);
  // The reference says nowhere whose it is.
  call(macvlan, "ADD", MASTER);
  runShellInNetns(container, "ip link set eth0 alias ''");
  call(macvlan, "DEL", MASTER, { containerId: "c3" });
  expect(linkNames(container)).toEqual(["lo"]);
});

lanTest("a master that is a port of a bridge is refused with the bridge", ({ call, host }) => {
  runShellInNetns(host, "ip link add br7 type bridge; ip link set up0 master br7");
  expect(() => call(macvlan, "ADD", MASTER)).toThrow(
    'Cannot create "eth0" on master "up0": Device or resource busy (EBUSY): "up0" is used by bridge "br7", of which it is a port',
  );
});

lanTest("an address that a sibling or the master has is refused with its holder", (segment) => {
  const first = attach(segment, "c1", ipamGiving("10.5.0.2/24", "fd05::2/64"));
  using home = startProcessInNetns(first.netns);
  const mac = first.result.interfaces![0]!.mac;
  expect(() => attach(segment, "c2", ipamGiving("10.5.0.2/16"))).toThrow(
    `in use by container "c1" (network "test", interface "eth0") in "${home.place}", MAC address ${mac}`,
  );
  expect(() => attach(segment, "c2", ipamGiving("fd05::2/64"))).toThrow(
    `in use by container "c1" (network "test", interface "eth0") in "${home.place}"`,
  );
  runShellInNetns(segment.host, "ip addr add 10.5.0.7/24 dev up0");
  expect(() => attach(segment, "c2", ipamGiving("10.5.0.7/24"))).toThrow(
    'Cannot use address 10.5.0.7/24: master "up0" has it',
  );
});

lanTest("a master that is down is taken, and that nobody was heard is said", ({ call, host, container, log }) => {
  runShellInNetns(host, "ip link set up0 down");
  const config = { ...MASTER, ...ipamGiving("10.5.0.2/24", "fd05::2/64") };
  const result = call(macvlan, "ADD", config);
  expect(log.join()).toContain('No carrier on "up0"');
  call(macvlan, "CHECK", withPrevResult(config, result));
  runShellInNetns(host, "ip link set up0 up");
  // The first question may come before the wire is there, and is repeated after a second.
  ping(container, "10.5.0.1");
});

lanTest("STATUS without master tells whether there is a default route", (segment) => {
  const { host } = segment;
  expect(statusCode(segment, macvlan, {})).toBe(50);
  runShellInNetns(host, "ip addr add 10.5.0.7/24 dev up0; ip route add default via 10.5.0.1");
  expect(statusCode(segment, macvlan, {})).toBe(0);
});
