import { expect } from "bun:test";
import { parseCidr, parseIp } from "../../ffi/address.ts";
import { linkNames, shown } from "../../ffi/testing.ts";
import bridge from "../bridge.ts";
import ptp from "../ptp.ts";
import { sandboxTest } from "./testing.ts";
import { newFixedIpam } from "./testing_ipam.ts";

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
    const present = new Set(shown(container, "-4", "route", "show").map(({ dst }) => dst));
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
