/** A host with a device that host-device is to give away. @module */
import { join } from "node:path";
import { parseCidr } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns.ts";
import { inNetns, shown } from "./netns.ts";
import { hostDevice } from "../plugins/host_device/plugin.ts";
import type { AnyPlugin } from "../plugins/lib/protocol/serve.ts";
import { type CallOptions, type Sandbox, sandboxTest } from "./sandbox.ts";
import { type FixedIpam, newFixedIpam } from "./fixed_ipam.ts";
import type { Result } from "../spec/result.ts";
import type { Verb } from "../spec/version.ts";

/** The IPAM plugin of these tests, and how often it was called. */
export const { fixed, counts }: { fixed: AnyPlugin; counts: Readonly<Record<string, number>> } = newFixedIpam();

/** Has `fixed` give these addresses. */
export function ipam(...addresses: string[]): FixedIpam & { result: Result } {
  return { type: "fixed", result: { ips: addresses.map((each) => ({ address: parseCidr(each) })) } };
}

/** A host with the device `nic0`, of which the other end is `far0` in a namespace of its own. */
export interface Bench extends Sandbox {
  readonly far: Netns;
  readonly sysfs: string;
  readonly states: string;
  ask(verb: Verb, config?: object, options?: CallOptions): ReturnType<Sandbox["call"]>;
}

/** Of the device. */
export const MAC = "0a:00:00:00:00:11";

/** Runs ip(8) with the words of a line. */
export function ip(netns: Netns, line: string): string {
  return inNetns(netns, "ip", ...line.split(" "));
}

/** A link as ip(8) shows it. */
// deno-lint-ignore no-explicit-any -- what ip(8) prints
export const linkOf = (netns: Netns, name: string): any => shown(netns, "link", "show", name)[0];

/** A test with such a host. */
export function deviceTest(name: string, body: (bench: Bench) => void | Promise<void>): void {
  sandboxTest(name, [fixed], (sandbox) => body(benchIn(sandbox)));
}

/** Puts the device onto the host of a sandbox. */
export function benchIn(sandbox: Sandbox): Bench {
  const far = sandbox.newContainer();
  ip(sandbox.host, `link add nic0 address ${MAC} type veth peer name far0 netns ${far.path}`);
  ip(far, "addr add 10.7.0.1/24 dev far0");
  ip(far, "-6 addr add fd07::1/64 dev far0 nodad");
  ip(far, "link set far0 up");
  const [sysfs, states] = [join(sandbox.directory, "sys"), join(sandbox.directory, "states")];
  const tested = hostDevice(sysfs);
  return {
    ...sandbox,
    far,
    sysfs,
    states,
    ask: (verb, config = { device: "nic0" }, options = {}) =>
      sandbox.call(tested, verb, { dataDir: states, ...config }, { ifname: "net1", ...options }),
  };
}
