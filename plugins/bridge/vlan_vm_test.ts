/** VLANs on a kernel whose bridges know them: not that of every machine. */
import { expect } from "bun:test";
import { parseCidr } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { ipShow, linkNames, runInNetns } from "../../testing/netns.ts";
import bridge from "./plugin.ts";
import { plugin } from "../lib/protocol/plugin.ts";
import { type Sandbox, sandboxTest } from "../../testing/sandbox.ts";
import { expectReached } from "../../testing/lan.ts";
import type { Result } from "../../spec/result.ts";
import { anything } from "../../spec/schema.ts";

/** An IPAM plugin that gives the addresses in its configuration. */
const fixed = plugin({
  name: "fixed",
  about: "Gives the addresses in its configuration",
  config: anything,
  add: ({ config }) => ({ ips: (config as { ipam: { addresses: string[] } }).ipam.addresses.map(addressOf) }),
  del() {},
  check() {},
});
const addressOf = (text: string) => ({ address: parseCidr(text) });
const ipam = (...addresses: string[]) => ({ type: "fixed", addresses });

const vlanTest = (name: string, body: (sandbox: Sandbox) => void) => sandboxTest(name, [fixed], body);

const isFiltering = (host: Netns, name: string): boolean =>
  ipShow(host, "link", "show", name)[0].linkinfo.info_data.vlan_filtering === 1;

/** The VLANs of a port as bridge(8) prints them: `100 PVID Egress Untagged`, `7`, `200-210`. */
function vlansOf(host: Netns, port: string): string[] {
  const [found] = JSON.parse(runInNetns(host, "bridge", "-j", "-compressvlans", "vlan", "show", "dev", port));
  return found.vlans.map(({ vlan, vlanEnd, flags = [] }: { vlan: number; vlanEnd?: number; flags?: string[] }) =>
    [vlanEnd ? `${vlan}-${vlanEnd}` : vlan, ...flags].join(" ")
  );
}

const UNTAGGED = "PVID Egress Untagged";

const portOf = (result: Result): string => result.interfaces![1]!.name;

/** Adds an interface for a VLAN to the trunk that a container has. */
function addTagged(netns: Netns, vlan: number, address: string): void {
  runInNetns(netns, "ip", "link", "add", "link", "eth0", "name", `eth0.${vlan}`, "type", "vlan", "id", String(vlan));
  runInNetns(netns, "ip", "addr", "add", address, "dev", `eth0.${vlan}`);
  runInNetns(netns, "ip", "link", "set", `eth0.${vlan}`, "up");
}

vlanTest("a port without VLAN settings leaves the bridge without filtering", ({ call, host }) => {
  call(bridge, "ADD", { ipam: ipam("10.1.0.2/24") });
  expect(isFiltering(host, "cni0")).toBe(false);
});

vlanTest("vlan makes an access port of exactly that VLAN", ({ call, host }) => {
  const port = portOf(call(bridge, "ADD", { vlan: 100 }));
  expect(isFiltering(host, "cni0")).toBe(true);
  expect(vlansOf(host, port)).toEqual([`100 ${UNTAGGED}`]);
});

vlanTest("vlanTrunk makes a trunk of ids and ranges, beside the native VLAN 1", ({ call, host }) => {
  const vlanTrunk = [{ id: 101 }, { minID: 200, maxID: 210 }, { id: 300, minID: 298, maxID: 299 }];
  const port = portOf(call(bridge, "ADD", { vlanTrunk }));
  expect(vlansOf(host, port)).toEqual([`1 ${UNTAGGED}`, "101", "200-210", "298-300"]);
});

vlanTest("vlan and vlanTrunk together: the one is untagged, the others are tagged", ({ call, host }) => {
  const port = portOf(call(bridge, "ADD", { vlan: 100, vlanTrunk: [{ id: 101 }, { minID: 200, maxID: 210 }] }));
  expect(vlansOf(host, port)).toEqual([`100 ${UNTAGGED}`, "101", "200-210"]);
});

vlanTest("the native VLAN stays untagged inside the range of the trunk", ({ call, host, newContainer }) => {
  const own = portOf(call(bridge, "ADD", { vlan: 100, vlanTrunk: [{ minID: 99, maxID: 102 }] }));
  expect(vlansOf(host, own)).toEqual(["99", `100 ${UNTAGGED}`, "101-102"]);
  const first = portOf(
    call(bridge, "ADD", { vlanTrunk: [{ minID: 1, maxID: 3 }] }, { containerId: "c2", netns: newContainer() }),
  );
  expect(vlansOf(host, first)).toEqual([`1 ${UNTAGGED}`, "2-3"]);
});

vlanTest("an empty vlanTrunk turns filtering on and leaves the port in VLAN 1", ({ call, host }) => {
  const port = portOf(call(bridge, "ADD", { vlanTrunk: [] }));
  expect(isFiltering(host, "cni0")).toBe(true);
  expect(vlansOf(host, port)).toEqual([`1 ${UNTAGGED}`]);
});

vlanTest("a trunk of all VLANs does not get in the way of other containers", ({ call, host, newContainer }) => {
  const attach = (config: object, containerId: string) =>
    portOf(call(bridge, "ADD", config, { containerId, netns: newContainer() }));
  const all = { vlanTrunk: [{ minID: 1, maxID: 4094 }] };
  expect(vlansOf(host, attach(all, "a"))).toEqual([`1 ${UNTAGGED}`, "2-4094"]);
  expect(vlansOf(host, attach(all, "b"))).toEqual([`1 ${UNTAGGED}`, "2-4094"]);
  expect(vlansOf(host, attach({ vlan: 7 }, "c"))).toEqual([`7 ${UNTAGGED}`]);
});

vlanTest("preserveDefaultVlan keeps the VLAN that the bridge gives to every port", ({ call, host, newContainer }) => {
  const port = portOf(call(bridge, "ADD", { vlan: 100, preserveDefaultVlan: true }));
  expect(vlansOf(host, port)).toEqual(["1 Egress Untagged", `100 ${UNTAGGED}`]);
  runInNetns(host, "ip", "link", "set", "cni0", "type", "bridge", "vlan_default_pvid", "5");
  const trunk = (preserveDefaultVlan: boolean, containerId: string) =>
    call(bridge, "ADD", { vlanTrunk: [{ id: 7 }], preserveDefaultVlan }, { containerId, netns: newContainer() });
  expect(vlansOf(host, portOf(trunk(false, "c2")))).toEqual([`1 ${UNTAGGED}`, "7"]);
  expect(vlansOf(host, portOf(trunk(true, "c3")))).toEqual([`1 ${UNTAGGED}`, "5 Egress Untagged", "7"]);
});

vlanTest(
  "a bridge that was there without filtering gets it, and the containers on it keep their connection",
  ({ call, host, container, newContainer }) => {
    const attach = (config: object, netns: Netns, containerId: string) =>
      call(bridge, "ADD", config, { netns, containerId });
    const [second, third] = [newContainer(), newContainer()];
    runInNetns(host, "ip", "link", "add", "cni0", "type", "bridge");
    attach({ ipam: ipam("10.1.0.2/24") }, container, "c1");
    attach({ ipam: ipam("10.1.0.3/24") }, second, "c2");
    expect(isFiltering(host, "cni0")).toBe(false);
    attach({ vlan: 100, ipam: ipam("10.1.0.4/24") }, third, "c3");
    expect(isFiltering(host, "cni0")).toBe(true);
    expectReached(container, ["10.1.0.3", "10.1.0.4"], ["10.1.0.3"]);
  },
);

vlanTest(
  "containers reach those of their VLAN, on IPv4 and IPv6, and nobody else",
  ({ call, container, newContainer }) => {
    const [second, other, plain] = [newContainer(), newContainer(), newContainer()];
    call(bridge, "ADD", { vlan: 100, ipam: ipam("10.1.0.2/24", "fd00:1::2/64") });
    const attach = (config: object, netns: Netns, containerId: string) =>
      call(bridge, "ADD", config, { netns, containerId });
    attach({ vlan: 100, ipam: ipam("10.1.0.3/24", "fd00:1::3/64") }, second, "c2");
    attach({ vlan: 200, ipam: ipam("10.1.0.4/24", "fd00:1::4/64") }, other, "c3");
    attach({ ipam: ipam("10.1.0.5/24", "fd00:1::5/64") }, plain, "c4");
    const others = ["10.1.0.3", "10.1.0.4", "10.1.0.5", "fd00:1::3", "fd00:1::4", "fd00:1::5"];
    expectReached(container, others, ["10.1.0.3", "fd00:1::3"]);
    expectReached(other, ["10.1.0.2", "10.1.0.5", "fd00:1::2", "fd00:1::5"], []);
    expectReached(plain, ["10.1.0.2", "10.1.0.4", "fd00:1::2", "fd00:1::4"], []);
  },
);

vlanTest(
  "a trunk carries its VLANs with tags and the native one without",
  ({ call, container, newContainer }) => {
    const access = (vlan: number, address: string) => {
      const netns = newContainer();
      call(bridge, "ADD", { vlan, ipam: ipam(address) }, { containerId: `vlan${vlan}`, netns });
      return netns;
    };
    call(bridge, "ADD", {
      vlan: 100,
      vlanTrunk: [{ minID: 100, maxID: 101 }],
      macspoofchk: true,
      ipam: ipam("10.100.0.1/24"),
    });
    addTagged(container, 101, "10.101.0.1/24");
    addTagged(container, 102, "10.102.0.1/24");
    access(100, "10.100.0.2/24");
    access(101, "10.101.0.2/24");
    access(102, "10.102.0.2/24");
    const others = ["10.100.0.2", "10.101.0.2", "10.102.0.2"];
    expectReached(container, others, ["10.100.0.2", "10.101.0.2"]);

    // The spoof check sees through the tag.
    runInNetns(container, "ip", "link", "set", "eth0.101", "address", "0a:00:00:00:00:66");
    expectReached(container, others, ["10.100.0.2"]);
  },
);

vlanTest(
  "the gateway of a VLAN is an interface of its own, the fourth of the result, shared by the VLAN's containers",
  ({ call, host, container, newContainer }) => {
    const config = (...addresses: string[]) => ({ vlan: 100, isDefaultGateway: true, ipam: ipam(...addresses) });
    const result = call(bridge, "ADD", { mtu: 1400, ...config("10.1.0.2/24", "fd00:1::2/64") });
    const gateway = ipShow(host, "addr", "show", "cni0.100")[0];
    expect(result.interfaces).toHaveLength(4);
    expect(result.interfaces![3] as unknown).toEqual({ name: "cni0.100", mac: gateway.address });
    const addresses = gateway.addr_info.filter((each: { scope: string }) => each.scope === "global");
    expect(addresses.map((each: { local: string }) => each.local)).toEqual(["10.1.0.1", "fd00:1::1"]);
    expect(gateway).toMatchObject({ mtu: 1400, operstate: "UP" });
    expect(ipShow(host, "-4", "addr", "show", "cni0")).toEqual([]);
    expect(vlansOf(host, gateway.link)).toEqual([`100 ${UNTAGGED}`]);
    expect(vlansOf(host, portOf(result))).toEqual([`100 ${UNTAGGED}`]);

    const second = newContainer();
    const again = call(bridge, "ADD", { mtu: 1400, ...config("10.1.0.3/24", "fd00:1::3/64") }, {
      containerId: "c2",
      netns: second,
    });
    expect(again.interfaces![3]).toEqual(result.interfaces![3]!);
    const gateways = ["10.1.0.1", "fd00:1::1"];
    expectReached(container, gateways, gateways);
    expectReached(second, gateways, gateways);
    expectReached(host, ["10.1.0.2", "fd00:1::3"], ["10.1.0.2", "fd00:1::3"]);
  },
);

vlanTest("the host routes between the VLANs that it is the gateway of", ({ call, container, newContainer }) => {
  const second = newContainer();
  const attach = (vlan: number, address: string, netns: Netns) =>
    call(bridge, "ADD", { vlan, isDefaultGateway: true, ipam: ipam(address) }, { containerId: `vlan${vlan}`, netns });
  attach(100, "10.1.0.2/24", container);
  attach(200, "10.2.0.2/24", second);
  expectReached(container, ["10.2.0.2"], ["10.2.0.2"]);
});

vlanTest("a gateway that an ADD could not finish is finished by the next one", ({ call, host, container }) => {
  runInNetns(host, ..."ip link add cni0 up type bridge vlan_filtering 1".split(" "));
  runInNetns(host, ..."ip link add half up master cni0 type veth peer name cni0.100".split(" "));
  call(bridge, "ADD", { vlan: 100, isGateway: true, ipam: ipam("10.1.0.2/24") });
  expect(vlansOf(host, "half")).toEqual([`100 ${UNTAGGED}`]);
  expectReached(container, ["10.1.0.1"], ["10.1.0.1"]);
});

vlanTest("CHECK notices VLANs that are gone or new, and that filtering is off", ({ call, host }) => {
  const config = { vlan: 100, vlanTrunk: [{ minID: 101, maxID: 103 }], isGateway: true, ipam: ipam("10.1.0.2/24") };
  const result = call(bridge, "ADD", config);
  const port = portOf(result);
  const check = () => call(bridge, "CHECK", { ...config, prevResult: { cniVersion: "1.1.0", ...result } });
  check();
  const drift: [string, string, string][] = [
    [`bridge vlan del vid 102 dev ${port}`, `bridge vlan add vid 102 dev ${port}`, `VLANs of "${port}"`],
    [`bridge vlan add vid 9 dev ${port}`, `bridge vlan del vid 9 dev ${port}`, `VLANs of "${port}"`],
    [`bridge vlan add vid 100 dev ${port}`, `bridge vlan add vid 100 dev ${port} pvid untagged`, `VLANs of "${port}"`],
    [
      "ip link set cni0 type bridge vlan_filtering 0",
      "ip link set cni0 type bridge vlan_filtering 1",
      "VLAN filtering",
    ],
    [
      "ip addr del 10.1.0.1/24 dev cni0.100",
      "ip addr add 10.1.0.1/24 dev cni0.100",
      'gateway address 10.1.0.1/24 is missing on "cni0.100"',
    ],
  ];
  for (const [change, back, message] of drift) {
    runInNetns(host, ...change.split(" "));
    expect(check, change).toThrow(message);
    runInNetns(host, ...back.split(" "));
    check();
  }
  runInNetns(host, "ip", "link", "del", "cni0.100");
  expect(check).toThrow("cni0.100");
});

vlanTest("CHECK accepts the VLANs that preserveDefaultVlan kept", ({ call }) => {
  const config = { vlan: 100, preserveDefaultVlan: true };
  call(bridge, "CHECK", { ...config, prevResult: { cniVersion: "1.1.0", ...call(bridge, "ADD", config) } });
});

vlanTest("DEL leaves nothing but the bridge and the gateway of the VLAN", ({ call, host, container }) => {
  const config = { vlan: 100, isGateway: true, ipMasq: true, macspoofchk: true, ipam: ipam("10.1.0.2/24") };
  for (const netns of [container, null]) {
    const result = call(bridge, "ADD", config);
    const gatewayPort = ipShow(host, "link", "show", "cni0.100")[0].link;
    const prevResult = { cniVersion: "1.1.0", ...result };
    call(bridge, "DEL", { ...config, prevResult }, { netns });
    call(bridge, "DEL", { ...config, prevResult }, { netns });
    expect(linkNames(host)).toEqual(["cni0", "cni0.100", "lo", gatewayPort]);
    expect(linkNames(container)).toEqual(["lo"]);
    expect(ipShow(host, "-4", "addr", "show", "cni0.100")).toHaveLength(1);
    expect(runInNetns(host, "nft", "list", "ruleset")).not.toContain("c1");
  }
});

vlanTest(
  "an ADD that fails takes the gateway of the VLAN with it, unless it was there",
  ({ call, host, newContainer }) => {
    const config = (...addresses: string[]) => ({ vlan: 100, isGateway: true, ipam: ipam(...addresses) });
    // The kernel refuses the gateway ::1 when the first one is there.
    const fail = () =>
      expect(() => call(bridge, "ADD", config("10.1.0.2/24", "::2/64"))).toThrow("Cannot add address ::1");
    fail();
    expect(linkNames(host)).toEqual(["lo"]);
    call(bridge, "ADD", config("10.1.0.3/24"), { containerId: "c2", netns: newContainer() });
    const names = linkNames(host);
    fail();
    expect(linkNames(host)).toEqual(names);
  },
);
