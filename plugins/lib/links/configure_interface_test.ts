import { expect } from "bun:test";
import { parseCidr, parseIp } from "../../../ffi/address.ts";
import { ipShow, linkNames } from "../../../testing/netns.ts";
import bridge from "../../bridge/plugin.ts";
import ptp from "../../ptp/plugin.ts";
import tap from "../../tap/plugin.ts";
import { sandboxTest } from "../../../testing/sandbox.ts";
import { newFixedIpam } from "../../../testing/fixed_ipam.ts";

const { fixed } = newFixedIpam();
const FOUR = { address: parseCidr("10.1.2.2/24"), gateway: parseIp("10.1.2.1") };
const SIX = { address: parseCidr("fd00:1::2/64"), gateway: parseIp("fd00:1::1") };
const ipam = (result: object) => ({ ipam: { type: "fixed", result } });

const MANY = Array.from({ length: 2000 }, (_, i) => ({ dst: parseCidr(`20.${i >> 8}.${i & 255}.0/24`) }));
const attachments = {
  "ptp": [ptp, {}],
  "bridge": [bridge, {}],
  "bridge with DAD": [bridge, { enabledad: true }],
} as const;

for (const [name, [plugin, more]] of Object.entries(attachments)) {
  sandboxTest(`${name} ADD gives a container 2000 routes`, [fixed], ({ call, container }) => {
    call(plugin, "ADD", { ...more, ...ipam({ ips: [FOUR, SIX], routes: MANY }) });
    const present = new Set(ipShow(container, "-4", "route", "show").map(({ dst }) => dst));
    expect(MANY.filter(({ dst }) => !present.has(dst))).toEqual([]);
  });
}

sandboxTest("of many routes, the one that the kernel refuses is named", [fixed], ({ call, container }) => {
  const routes = [...MANY, { dst: parseCidr("30.0.0.0/24"), gw: parseIp("192.0.2.1") }];
  expect(() => call(bridge, "ADD", ipam({ ips: [FOUR], routes }))).toThrow(
    'Cannot add route to 30.0.0.0/24 via 192.0.2.1 dev "eth0": Network is unreachable',
  );
  expect(linkNames(container)).toEqual(["lo"]);
});

const small = {
  "ptp": [ptp, {}, "veth[0-9a-f]{8}"],
  "bridge": [bridge, {}, "eth0"],
  "bridge with a gateway": [bridge, { isGateway: true }, "eth0"],
  "tap": [tap, {}, "eth0"],
} as const;

for (const [name, [plugin, more, device]] of Object.entries(small)) {
  sandboxTest(`${name} ADD says which MTU is too small for IPv6`, [fixed], ({ call, container, host }) => {
    const config = { ...more, mtu: 1279, ...ipam({ ips: [FOUR, SIX] }) };
    let error: unknown;
    try {
      call(plugin, "ADD", config);
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toMatchObject({
      code: 7,
      message: expect.stringMatching(
        new RegExp(`^Cannot give "${device}" an IPv6 address: its MTU must be at least 1280 for IPv6, got 1279$`),
      ),
    });
    expect(linkNames(container)).toEqual(["lo"]);
    expect(ipShow(host, "link", "show").filter(({ mtu }) => mtu === 1279)).toEqual([]);
    call(plugin, "ADD", { ...config, ...ipam({ ips: [FOUR] }) });
    call(plugin, "DEL", config);
    call(plugin, "ADD", { ...config, mtu: 1280 });
  });
}

sandboxTest("a bridge that another port gave an MTU too small for IPv6 is named", [fixed], ({ call, newContainer }) => {
  const small = { isGateway: true, mtu: 1279, ...ipam({ ips: [FOUR] }) };
  call(bridge, "ADD", small, { containerId: "small", netns: newContainer() });
  expect(() => call(bridge, "ADD", { isGateway: true, mtu: 1500, ...ipam({ ips: [SIX] }) })).toThrow(
    'Cannot give "cni0" an IPv6 address: its MTU must be at least 1280 for IPv6, got 1279',
  );
});
