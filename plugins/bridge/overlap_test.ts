/** A bridge whose subnet is the host's own network, or looks like it. */
import { expect } from "bun:test";
import { runInNetns, runShellInNetns } from "../../testing/netns.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";
import { ipamOf, OVERLAP_CASES, uplinkTest } from "../../testing/host_with_uplink.ts";
import { CniError, Code } from "../../spec/error.ts";
import bridge from "./plugin.ts";

const UPLINK_SUBNET = { isGateway: true, ipam: ipamOf("192.168.1.7/24", "192.168.1.1") };

uplinkTest("a bridge with the uplink's subnet takes the host offline only if its configuration says so", (sandbox) => {
  const { call, isOnline, hostState } = sandbox;
  expect(isOnline()).toBe(true);
  const before = hostState();
  const error = errorOfCall(() => call(bridge, "ADD", UPLINK_SUBNET));
  expect(error).toMatchObject({
    code: Code.InvalidConfig,
    message:
      'Cannot attach the container: subnet 192.168.1.0/24 overlaps address 192.168.1.5/24 of the host\'s link "eth0"',
    details: 'choose another subnet; "allowRouteOverlap": true lets the network have it all the same',
  });
  expect([isOnline(), hostState()]).toEqual([true, before]);
  call(bridge, "ADD", { ...UPLINK_SUBNET, allowRouteOverlap: true });
  expect(isOnline()).toBe(false);
});

for (const { name, setUp = "true", address, gateway, refusal } of OVERLAP_CASES) {
  uplinkTest(`bridge: ${name} is ${refusal ? "refused" : "no overlap"}`, ({ call, host, hostState }) => {
    runShellInNetns(host, setUp);
    const before = hostState();
    const config = { isGateway: true, ipam: ipamOf(address, gateway) };
    if (refusal === undefined) return void call(bridge, "ADD", config);
    expect(errorOfCall(() => call(bridge, "ADD", config)).message).toBe(`Cannot attach the container: ${refusal}`);
    expect(hostState()).toBe(before);
    call(bridge, "ADD", { ...config, allowRouteOverlap: true });
  });
}

uplinkTest("a bridge that only connects may have the uplink's subnet", ({ call, isOnline }) => {
  call(bridge, "ADD", { ...UPLINK_SUBNET, isGateway: false });
  expect(isOnline()).toBe(true);
});

const OWN = { isGateway: true, bridge: "br9", ipam: ipamOf("10.9.0.7/16", "10.9.0.1") };

uplinkTest("networks share a bridge, and follow one that no container uses any more", ({ call, newContainer }) => {
  call(bridge, "ADD", OWN);
  const next = { containerId: "c2", netns: newContainer() };
  call(bridge, "ADD", { ...OWN, name: "other", ipam: ipamOf("10.9.0.8/16", "10.9.0.1") }, next);
  const moved = { ...OWN, bridge: "br10", ipam: ipamOf("10.9.0.9/16", "10.9.0.1") };
  const third = { containerId: "c3", netns: newContainer() };
  expect(errorOfCall(() => call(bridge, "ADD", moved, third)).message).toBe(
    'Cannot attach the container: subnet 10.9.0.0/16 overlaps address 10.9.0.1/16 of the host\'s link "br9"',
  );
  call(bridge, "DEL", OWN);
  call(bridge, "DEL", { ...OWN, name: "other" }, next);
  call(bridge, "ADD", moved, third);
});

uplinkTest("an address that the host got after the bridge is not given to a container", (sandbox) => {
  const { call, host, newContainer } = sandbox;
  call(bridge, "ADD", OWN);
  runInNetns(host, "ip", "addr", "add", "10.9.200.5/24", "dev", "eth0");
  const second = { containerId: "c2", netns: newContainer() };
  expect(errorOfCall(() => call(bridge, "ADD", { ...OWN, ipam: ipamOf("10.9.200.5/16", "10.9.0.1") }, second)).message)
    .toBe('Cannot attach the container: subnet 10.9.0.0/16 overlaps address 10.9.200.5/24 of the host\'s link "eth0"');
  call(bridge, "ADD", { ...OWN, ipam: ipamOf("10.9.0.8/16", "10.9.0.1") }, second);
});

const CONFIGURED = {
  isGateway: true,
  ipam: { type: "fixed", ranges: [[{ subnet: "192.168.1.0/24", gateway: "192.168.1.1" }]] },
};

uplinkTest("STATUS says that an ADD will be refused", ({ call }) => {
  const error = errorOfCall(() => call(bridge, "STATUS", CONFIGURED));
  expect(error).toBeInstanceOf(CniError);
  expect(error).toMatchObject({
    code: Code.NotAvailable,
    message:
      'Cannot attach containers: subnet 192.168.1.0/24 overlaps address 192.168.1.5/24 of the host\'s link "eth0"',
  });
  call(bridge, "STATUS", { ...CONFIGURED, allowRouteOverlap: true });
  call(bridge, "STATUS", { ...CONFIGURED, isGateway: false });
});
