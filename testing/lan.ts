/**
 * A wire with a machine at its far end, for tests of plugins that put containers onto it: the host's end is the master `up0`, the machine
 * outside has 10.5.0.1 and fd05::1.
 *
 * @module
 */
import { expect } from "bun:test";
import { parseCidr } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { ping, runInNetns, runShellInNetns, WITHOUT_DAD } from "./netns.ts";
import type { CniError } from "../spec/error.ts";
import type { IpConfig, Result } from "../spec/result.ts";
import { anything, type RouteConfig } from "../spec/schema.ts";
import { plugin } from "../plugins/lib/protocol/plugin.ts";
import type { AnyPlugin } from "../plugins/lib/protocol/context.ts";
import { type Sandbox, type SandboxCallOptions, sandboxTest } from "./sandbox.ts";

interface GivenAddresses {
  readonly ips: readonly string[];
  readonly routes?: readonly RouteConfig[];
  readonly gateway?: string;
}

/** An IPAM plugin that gives the addresses in its configuration and notes what it is asked. */
const fixedAddressesIpam = (commands: string[]) =>
  plugin({
    name: "fixed",
    about: "Gives the addresses in its configuration",
    config: anything,
    add({ config }): Result {
      commands.push("ADD");
      const { ips, routes, gateway } = (config as { ipam: GivenAddresses }).ipam;
      const ipConfigs = ips.map((address) => ({ address: parseCidr(address), ...gateway && { gateway } } as IpConfig));
      return { ips: ipConfigs, ...routes && { routes } };
    },
    del: () => void commands.push("DEL"),
    check: () => void commands.push("CHECK"),
  });

/** The configuration of an IPAM plugin that gives these addresses. */
export function ipamGiving(...ips: readonly string[]): { readonly ipam: { readonly type: string } & GivenAddresses } {
  return { ipam: { type: "fixed", ips } };
}

/** A host on a wire. */
export interface LanSandbox extends Sandbox {
  /** The machine at the far end. */
  readonly outside: Netns;
  /** Commands that the IPAM plugin got. */
  readonly ipamCalls: string[];
}

/** A test on a wire of its own. */
export function lanTest(name: string, body: (segment: LanSandbox) => void | Promise<void>): void {
  const asked: string[] = [];
  sandboxTest(name, [fixedAddressesIpam(asked)], (sandbox) => {
    const outside = sandbox.newContainer();
    runShellInNetns(outside, WITHOUT_DAD);
    runShellInNetns(sandbox.host, WITHOUT_DAD, `ip link add up0 up type veth peer name eth0 netns ${outside.path}`);
    runShellInNetns(
      outside,
      "ip addr add 10.5.0.1/24 dev eth0; ip addr add fd05::1/64 dev eth0 nodad; ip link set eth0 up",
    );
    return body({ ...sandbox, outside, ipamCalls: asked });
  });
}

/** Those of the addresses that must answer a ping do, however long it takes, and none of the others in a second. */
export function expectReached(netns: Netns, targets: readonly string[], expected: readonly string[]): void {
  const silent = targets.filter((target) => !expected.includes(target));
  const script = 'for target; do busybox ping -c 1 -W 1 "$target" >/dev/null && echo "$target" & done; wait';
  expect(runInNetns(netns, "sh", "-c", script, "sh", ...silent)).toBe("");
  for (const target of expected) ping(netns, target);
}

/** A process that stays in a namespace, so that it can be found as a container's can. */
export function startProcessInNetns(netns: Netns): Disposable & { readonly place: string } {
  const child = netns.run<Bun.Subprocess & { pid: number }>(() => Bun.spawn(["sleep", "60"]));
  return { place: `/proc/${child.pid}/ns/net`, [Symbol.dispose]: () => child.kill() };
}

/** Attaches further containers of a segment by a plugin, with a configuration that the one of each call is added to. */
export function newAttacher(plugin: AnyPlugin, common: object) {
  return (
    { call, newContainer }: LanSandbox,
    containerId: string,
    config: object,
    options: SandboxCallOptions = {},
  ) => {
    const netns = newContainer();
    return { netns, result: call(plugin, "ADD", { ...common, ...config }, { containerId, netns, ...options }) };
  };
}

/** The code that STATUS is refused with; 0 if it is not. */
export function statusCode({ call }: LanSandbox, plugin: AnyPlugin, config: object): number {
  try {
    call(plugin, "STATUS", config);
  } catch (error) {
    return (error as CniError).code;
  }
  return 0;
}
