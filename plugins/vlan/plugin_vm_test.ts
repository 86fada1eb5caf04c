/** The vlan plugin on a kernel that has VLANs: not that of every machine. */
import { expect } from "bun:test";
import type { Netns } from "../../ffi/netns/netns.ts";
import { ipShow, linkNames, runShellInNetns } from "../../testing/netns.ts";
import { withPrevResult } from "../../testing/sandbox.ts";
import {
  expectReached,
  ipamGiving,
  type LanSandbox,
  lanTest,
  newAttacher,
  startProcessInNetns,
  statusCode,
} from "../../testing/lan.ts";
import { testLinkOnMaster } from "../../testing/link_on_master.ts";
import type { Result } from "../../spec/result.ts";
import vlan from "./plugin.ts";

const FIVE = { master: "up0", vlanId: 5 };
const linkOf = (netns: Netns) => ipShow(netns, "link", "show", "eth0")[0];
const attach = newAttacher(vlan, FIVE);

/** Gives the machine outside addresses in a VLAN. */
function joinOutside({ outside }: LanSandbox, id: number, ...addresses: string[]): void {
  runShellInNetns(
    outside,
    `ip link add link eth0 name v${id} type vlan id ${id}`,
    ...addresses.map((each) => `ip addr add ${each} dev v${id} ${each.includes(":") ? "nodad" : ""}`),
    `ip link set v${id} up`,
  );
}

// With a master of the host, and with one of the container: `linkInContainer`.
testLinkOnMaster(vlan, {
  keys: { vlanId: 5 },
  joinOutside(segment) {
    runShellInNetns(segment.outside, "ip addr flush dev eth0");
    joinOutside(segment, 5, "10.5.0.1/24", "fd05::1/64");
    return "v5";
  },
});

lanTest("the container speaks to machines in its VLAN, in both families, and to nobody else", (segment) => {
  const { call, container, host } = segment;
  joinOutside(segment, 5, "10.6.0.1/24", "fd06::1/64");
  const config = { ...FIVE, ...ipamGiving("10.6.0.9/24", "fd06::9/64") };
  const result = call(vlan, "ADD", config);
  const link = linkOf(container);
  expect(link).toMatchObject({
    mtu: 1500,
    ifalias: "cni:test c1 eth0",
    linkinfo: { info_kind: "vlan", info_data: { protocol: "802.1Q", id: 5 } },
  });
  expect(result).toEqual({
    interfaces: [{ name: "eth0", mac: link.address, sandbox: container.path }],
    ips: [{ address: "10.6.0.9/24", interface: 0 }, { address: "fd06::9/64", interface: 0 }],
  } as unknown as Result);
  expectReached(container, ["10.6.0.1", "fd06::1"], ["10.6.0.1", "fd06::1"]);
  const other = attach(segment, "c2", { vlanId: 6, ...ipamGiving("10.6.0.8/24") });
  expectReached(other.netns, ["10.6.0.1", "10.6.0.9"], []);
  call(vlan, "CHECK", withPrevResult(config, result));
  expect(linkNames(host)).toEqual(["lo", "up0"]);
});

lanTest("VLANs 0 to 4094; mtu: the master's, or less", (segment) => {
  runShellInNetns(segment.host, "ip link set up0 mtu 1400");
  const idOf = (netns: Netns) => linkOf(netns).linkinfo.info_data.id;
  expect(idOf(attach(segment, "c0", { vlanId: 0 }).netns)).toBe(0);
  expect(idOf(attach(segment, "c4094", { vlanId: 4094 }).netns)).toBe(4094);
  expect(linkOf(attach(segment, "c7", { vlanId: 7 }).netns).mtu).toBe(1400);
  expect(linkOf(attach(segment, "c8", { vlanId: 8, mtu: 1300 }).netns).mtu).toBe(1300);
  expect(() => attach(segment, "c9", { mtu: 1401 })).toThrow(
    'mtu must be at most 1400, the MTU of its master "up0": got 1401',
  );
  expect(() => attach(segment, "c9", { vlanId: 4095 })).toThrow("vlanId must be a whole number from 0 to 4094");
  expect(() => attach(segment, "c9", { master: "" })).toThrow(
    "master must be the name of the interface under the VLAN",
  );
});

lanTest("a VLAN that another container has is refused with that container", (segment) => {
  const first = attach(segment, "c1", {});
  using home = startProcessInNetns(first.netns);
  expect(() => attach(segment, "c2", {})).toThrow(
    `Cannot create "eth0" on master "up0": File exists (EEXIST, 8021q: VLAN device already exists): "up0" is used by container "c1" (network "test", interface "eth0") in "${home.place}"`,
  );
  runShellInNetns(segment.host, "ip link add link up0 name mine type vlan id 9");
  expect(() => attach(segment, "c2", { vlanId: 9 })).toThrow('"up0" is used by vlan "mine"');
  runShellInNetns(segment.container, "ip link add eth0 type veth peer name far");
  expect(() => segment.call(vlan, "ADD", { ...FIVE, vlanId: 10 })).toThrow(
    "the container has an interface of that name",
  );
});

lanTest("a master that is down is named", ({ call, host, container, ipamCalls }) => {
  runShellInNetns(host, "ip link set up0 down");
  expect(() => call(vlan, "ADD", { ...FIVE, ...ipamGiving("10.6.0.9/24") })).toThrow(
    'Cannot set "eth0" up: its master "up0" is down',
  );
  expect(linkNames(container)).toEqual(["lo"]);
  expect(ipamCalls).toEqual(["ADD", "DEL"]);
});

lanTest("without IPAM the link is up and bare, also for CHECK", ({ call, container, ipamCalls }) => {
  const result = call(vlan, "ADD", FIVE);
  expect(result.ips).toBeUndefined();
  expect(linkOf(container).flags).toContain("UP");
  call(vlan, "CHECK", withPrevResult(FIVE, result));
  expect(ipamCalls).toEqual([]);
});

lanTest(
  "CHECK accepts /32 and routes of other tables, and names what is otherwise",
  ({ call, container, host }) => {
    runShellInNetns(host, "ip link add other up type veth peer name far");
    const routes = [{ dst: "10.6.0.1/32", scope: 253 }, { dst: "0.0.0.0/0", gw: "10.6.0.1", table: 5000 }];
    const config = { ...FIVE, mtu: 1400, ipam: { type: "fixed", ips: ["10.6.0.2/32"], routes } };
    const result = call(vlan, "ADD", config);
    const check = (change: object = {}) => call(vlan, "CHECK", withPrevResult({ ...config, ...change }, result));
    check();
    expect(() => check({ vlanId: 6 })).toThrow('VLAN of "eth0" is 5, expected 6');
    expect(() => check({ master: "other" })).toThrow('master of "eth0" is "up0", expected "other"');
    expect(() => check({ master: "gone" })).toThrow('the host has no master "gone" for "eth0"');
    expect(() => check({ mtu: 1300 })).toThrow('MTU of "eth0" is 1400, expected 1300');
    runShellInNetns(container, "ip route flush table 5000");
    expect(() => check()).toThrow('"eth0" lacks the route to 0.0.0.0/0 via 10.6.0.1');
  },
);

lanTest("an address of another VLAN, or outside of any, is another one", (segment) => {
  joinOutside(segment, 5, "10.6.0.1/24", "fd06::1/64");
  using _home = startProcessInNetns(attach(segment, "c2", { vlanId: 6, ...ipamGiving("fd06::1/64") }).netns);
  runShellInNetns(segment.host, "ip addr add 10.6.0.7/24 dev up0");
  segment.call(vlan, "ADD", { ...FIVE, ...ipamGiving("10.6.0.7/24") });
});

lanTest("STATUS refuses a configuration without master", (segment) => {
  expect(statusCode(segment, vlan, { vlanId: 5 })).toBe(7);
});
