/**
 * Bridges under test: IPAM that says what it is told to, and what ip(8) shows of them.
 *
 * @module
 */
import { parseCidr, parseIp } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns.ts";
import { inNetns } from "../../ffi/testing.ts";
import { plugin } from "../kit/plugin.ts";
import { type Sandbox, sandboxTest } from "../kit/testing.ts";
import { CniError } from "../spec/error.ts";
import type { Result } from "../spec/result.ts";
import { anything } from "../spec/schema.ts";

/** How often the IPAM plugin was called. */
export const counts = { add: 0, del: 0, check: 0, gc: 0, status: 0 };
/** An IPAM plugin that says what its configuration tells it to, and counts. */
const fixed = plugin({
  name: "fixed",
  about: "Gives the addresses in its configuration",
  config: anything,
  add({ config }) {
    counts.add++;
    const { ipam } = config as { ipam: { fail?: boolean; result: Result } };
    if (ipam.fail) throw new CniError(11, "no address now");
    return ipam.result;
  },
  del: () => void counts.del++,
  check: () => void counts.check++,
  gc: () => void counts.gc++,
  status: () => void counts.status++,
});

export const address = (each: string, gateway?: string) => ({
  address: parseCidr(each),
  ...gateway ? { gateway: parseIp(gateway) } : {},
});
export const ipam = (...ips: ReturnType<typeof address>[]) => ({ type: "fixed", result: { ips } });
export const four = ipam(address("10.1.2.2/24", "10.1.2.1"));
export const both = ipam(address("10.1.2.2/24", "10.1.2.1"), address("fd00:1::2/64", "fd00:1::1"));

export const bridgeTest = (name: string, body: (sandbox: Sandbox) => void) => sandboxTest(name, [fixed], body);
// deno-lint-ignore no-explicit-any -- what ip(8) prints
export const shown = (netns: Netns, ...args: string[]): any[] =>
  JSON.parse(inNetns(netns, "ip", "-j", "-d", ...args) || "[]");
export const names = (netns: Netns): string[] => shown(netns, "link", "show").map((each) => each.ifname).sort();
