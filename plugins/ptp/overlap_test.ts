/** A ptp network whose subnet is the host's own network, or looks like it. */
import { expect } from "bun:test";
import { parseCidr, parseIp } from "../../ffi/address.ts";
import * as link from "../../ffi/route/link.ts";
import { countingNetns } from "../../testing/netlink_counts.ts";
import { runShellInNetns } from "../../testing/netns.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";
import { ipamOf, OVERLAP_CASES, uplinkTest } from "../../testing/host_with_uplink.ts";
import { Code } from "../../spec/error.ts";
import { refuseOverlapOnce } from "./overlap.ts";
import ptp from "./plugin.ts";

const UPLINK_SUBNET = { ipam: ipamOf("192.168.1.7/24", "192.168.1.1") };

uplinkTest("ptp with the router's address takes the host offline only if its configuration says so", (sandbox) => {
  const { call, isOnline, hostState } = sandbox;
  expect(isOnline()).toBe(true);
  const before = hostState();
  expect(errorOfCall(() => call(ptp, "ADD", UPLINK_SUBNET))).toMatchObject({
    code: Code.InvalidConfig,
    message:
      'Cannot attach the container: subnet 192.168.1.0/24 overlaps address 192.168.1.5/24 of the host\'s link "eth0"',
  });
  expect([isOnline(), hostState()]).toEqual([true, before]);
  call(ptp, "ADD", { ...UPLINK_SUBNET, allowRouteOverlap: true });
  expect(isOnline()).toBe(false);
});

for (const { name, setUp = "true", address, gateway, refusal } of OVERLAP_CASES) {
  uplinkTest(`ptp: ${name} is ${refusal ? "refused" : "no overlap"}`, ({ call, host, hostState }) => {
    runShellInNetns(host, setUp);
    const before = hostState();
    const config = { ipam: ipamOf(address, gateway) };
    if (refusal === undefined) return void call(ptp, "ADD", config);
    expect(errorOfCall(() => call(ptp, "ADD", config)).message).toBe(`Cannot attach the container: ${refusal}`);
    expect(hostState()).toBe(before);
  });
}

uplinkTest("networks of ptp share a gateway, and none gets an address that the host has by then", (sandbox) => {
  const { call, host, newContainer } = sandbox;
  call(ptp, "ADD", { ipam: ipamOf("10.9.0.7/16", "10.9.0.1") });
  const second = { containerId: "c2", netns: newContainer() };
  call(ptp, "ADD", { name: "other", ipam: ipamOf("10.9.0.8/16", "10.9.0.1") }, second);
  runShellInNetns(host, "ip addr add 10.9.200.5/24 dev eth0");
  const third = { containerId: "c3", netns: newContainer() };
  expect(errorOfCall(() => call(ptp, "ADD", { ipam: ipamOf("10.9.200.9/16", "10.9.0.1") }, third)).message)
    .toBe('Cannot attach the container: subnet 10.9.0.0/16 overlaps address 10.9.200.5/24 of the host\'s link "eth0"');
  call(ptp, "ADD", { ipam: ipamOf("10.9.0.9/16", "10.9.0.1") }, third);
});

uplinkTest("STATUS says that a first ADD of ptp will be refused", ({ call }) => {
  const config = { ipam: { type: "fixed", ranges: [[{ subnet: "192.168.0.0/16" }]] } };
  expect(errorOfCall(() => call(ptp, "STATUS", config))).toMatchObject({
    code: Code.NotAvailable,
    message:
      'Cannot attach containers: subnet 192.168.0.0/16 overlaps address 192.168.1.5/24 of the host\'s link "eth0"',
  });
  call(ptp, "STATUS", { ...config, allowRouteOverlap: true });
});

uplinkTest("only the first container of a network makes ptp look at all links", ({ call, host, newContainer }) => {
  const ips = [{ address: parseCidr("10.9.0.8/16"), gateway: parseIp("10.9.0.1") }];
  const ips6 = [{ address: parseCidr("fd09::8/64"), gateway: parseIp("fd09::1") }];
  const countDumps = (wanted = ips) => {
    const counts = { sends: 0, messages: 0, dumps: 0, received: 0 };
    refuseOverlapOnce(countingNetns(host, counts), link.get(host.route, "eth0"), wanted);
    return counts.dumps;
  };
  expect(countDumps()).toBe(2);
  call(ptp, "ADD", { ipam: ipamOf("10.9.0.7/16", "10.9.0.1") });
  expect(countDumps()).toBe(0);
  // As a node's own ranges have, for addresses without a container.
  call(ptp, "ADD", { name: "v6", ipam: ipamOf("fd09::7/64", "fd09::1") }, { containerId: "c2", netns: newContainer() });
  for (const range of ["10.9.0.0/16", "fd09::/64"]) {
    runShellInNetns(host, `ip route add unreachable ${range} metric 1000000000`);
  }
  expect([countDumps(), countDumps(ips6)]).toEqual([0, 0]);
});
