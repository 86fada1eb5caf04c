/** A host with a device that host-device is to give away. @module */
import { join } from "node:path";
import { parseCidr } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { ipShow, runIp } from "./netns.ts";
import { hostDevice } from "../plugins/host_device/plugin.ts";
import type { AnyPlugin } from "../plugins/lib/protocol/context.ts";
import { type Sandbox, type SandboxCallOptions, sandboxTest } from "./sandbox.ts";
import { type FixedIpam, newFixedIpam } from "./fixed_ipam.ts";
import type { Result } from "../spec/result.ts";
import type { CniCommand } from "../spec/version.ts";

/** The IPAM plugin of these tests, and how often it was called. */
export const { fixed, counts }: { fixed: AnyPlugin; counts: Readonly<Record<string, number>> } = newFixedIpam();

/** The `ipam` with which `fixed` gives these addresses, written as `10.0.0.2/24`. */
export function giveAddresses(...addresses: string[]): FixedIpam & { result: Result } {
  return { type: "fixed", result: { ips: addresses.map((cidr) => ({ address: parseCidr(cidr) })) } };
}

/** A host with the device `nic0`, of which the other end is `far0` in a namespace of its own. */
export interface DeviceSandbox extends Sandbox {
  /** The namespace of `far0`, which has 10.7.0.1/24 and fd07::1/64. */
  readonly peerNetns: Netns;
  /** Where the plugin finds sysfs: a directory that is not there yet. */
  readonly sysfs: string;
  /** Where the plugin keeps its state. */
  readonly dataDir: string;
  /** Calls the plugin for `nic0` unless told, as `net1`. */
  callPlugin(verb: CniCommand, config?: object, options?: SandboxCallOptions): ReturnType<Sandbox["call"]>;
}

/** The MAC address of the device. */
export const DEVICE_MAC = "0a:00:00:00:00:11";

/** A link as ip(8) shows it. */
// deno-lint-ignore no-explicit-any -- what ip(8) prints
export const ipLinkShow = (netns: Netns, name: string): any => ipShow(netns, "link", "show", name)[0];

/** Defines a test with such a host. */
export function deviceTest(name: string, body: (bench: DeviceSandbox) => void | Promise<void>): void {
  sandboxTest(name, [fixed], (sandbox) => body(newDeviceSandbox(sandbox)));
}

/** Puts the device onto the host of a sandbox. */
export function newDeviceSandbox(sandbox: Sandbox): DeviceSandbox {
  const peerNetns = sandbox.newContainer();
  runIp(sandbox.host, `link add nic0 address ${DEVICE_MAC} type veth peer name far0 netns ${peerNetns.path}`);
  runIp(peerNetns, "addr add 10.7.0.1/24 dev far0");
  runIp(peerNetns, "-6 addr add fd07::1/64 dev far0 nodad");
  runIp(peerNetns, "link set far0 up");
  const [sysfs, dataDir] = [join(sandbox.directory, "sys"), join(sandbox.directory, "states")];
  const tested = hostDevice(sysfs);
  return {
    ...sandbox,
    peerNetns,
    sysfs,
    dataDir,
    callPlugin: (verb, config = { device: "nic0" }, options = {}) =>
      sandbox.call(tested, verb, { dataDir: dataDir, ...config }, { ifname: "net1", ...options }),
  };
}
