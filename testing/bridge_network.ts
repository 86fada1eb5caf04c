/**
 * A small network for tests with real traffic: a host with a bridge and containers on it, and a machine outside.
 *
 * ```
 * outside 192.0.2.2, 2001:db8::2 ── host 192.0.2.1, 2001:db8::1 ── br0 10.88.0.1/16, fd88::1/64 ── c1 10.88.0.2, fd88::2 …
 * ```
 *
 * The machine outside has no route to the containers' subnets: without masquerading no answer finds its way back.
 *
 * @module
 */
import { test } from "bun:test";
import { type Cidr, type Ip, parseCidr, parseIp } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { newNetns, runShellInNetns, WITHOUT_BRIDGE_NETFILTER, WITHOUT_DAD } from "./netns.ts";
import { connectOutside } from "./outside.ts";
import { requestTcp, serveTcp } from "./traffic.ts";
import type { Result } from "../spec/result.ts";
import type { CniCommand } from "../spec/version.ts";
import type { PluginCallText } from "../plugins/lib/protocol/serve.ts";
import type { AnyPlugin } from "../plugins/lib/protocol/context.ts";
import { invokePlugin, newHostContext, newRequest, restorePlugin } from "./plugin_call.ts";

/** A container on the bridge. */
export interface BridgeContainer {
  readonly netns: Netns;
  readonly v4: Ip;
  readonly v6: Ip;
  readonly addresses: readonly Cidr[];
  /** The answer that the plugin that connected it would have given. */
  readonly result: Result;
}

/** The container that a command is for, and its parameters. */
export interface BridgeNetworkCall {
  readonly container?: BridgeContainer;
  /** The result of {@linkcode BridgeContainer.result} unless told; none for `null`. */
  readonly prevResult?: object | null;
  readonly containerId?: string;
  readonly ifname?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** The host, its containers and the machine outside. */
export interface BridgeNetwork {
  readonly host: Netns;
  readonly outside: Netns;
  /** A container on the bridge: the n-th has 10.88.0.n and fd88::n; the host's end of its veth pair is `veth<n>`. */
  container(n: number): BridgeContainer;
  /** The lines that plugins logged. */
  readonly log: string[];
  /** Calls a plugin as a runtime does and gives what it printed, parsed. @throws {CniError} what it answered with */
  call(plugin: AnyPlugin, verb: CniCommand, config: object, call?: BridgeNetworkCall): unknown;
  /** Has a plugin put back the rules that are missing. @returns what that was, in words */
  restore(plugin: AnyPlugin, config: object, call?: BridgeNetworkCall): readonly string[];
}

/** A network that ends with the resources. */
export function newBridgeNetwork(resources: DisposableStack): BridgeNetwork {
  const host = resources.use(newNetns());
  const outside = resources.use(newNetns());
  runShellInNetns(
    host,
    WITHOUT_DAD,
    WITHOUT_BRIDGE_NETFILTER,
    "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding",
    "ip link add br0 type bridge",
    "ip addr add 10.88.0.1/16 dev br0; ip addr add fd88::1/64 dev br0 nodad; ip link set br0 up",
  );
  connectOutside(host, outside);
  const log: string[] = [];
  const context = newHostContext({ host, log });
  return {
    host,
    outside,
    log,
    call: (plugin, ...all) => invokePlugin(plugin, requestFor(plugin, ...all), context),
    restore: (plugin, ...all) => restorePlugin(plugin, requestFor(plugin, "ADD", ...all), context),
    container(n) {
      const netns = resources.use(newNetns());
      runShellInNetns(netns, WITHOUT_DAD);
      runShellInNetns(host, `ip link add veth${n} master br0 up type veth peer name eth0 netns ${netns.path}`);
      runShellInNetns(
        netns,
        `ip link set lo up; ip addr add 10.88.0.${n}/16 dev eth0; ip addr add fd88::${n}/64 dev eth0 nodad`,
        "ip link set eth0 up; ip route add default via 10.88.0.1; ip route add default via fd88::1",
      );
      const addresses = [parseCidr(`10.88.0.${n}/16`), parseCidr(`fd88::${n}/64`)];
      const interfaces = [{ name: "br0" }, { name: `veth${n}` }, { name: "eth0", sandbox: netns.path }];
      const result = { interfaces, ips: addresses.map((address) => ({ address, interface: 2 })) };
      return { netns, v4: parseIp(`10.88.0.${n}`), v6: parseIp(`fd88::${n}`), addresses, result };
    },
  };
}

function requestFor(
  plugin: AnyPlugin,
  verb: CniCommand,
  config: object,
  { container, containerId, ifname, env = {}, prevResult = container?.result }: BridgeNetworkCall = {},
): PluginCallText {
  const document = { name: "web", ...prevResult && { prevResult }, ...config };
  return newRequest(plugin.name, verb, document, {
    netns: container?.netns ?? null,
    env,
    ...containerId !== undefined && { containerId },
    ...ifname !== undefined && { ifname },
  });
}

/** Defines a test in a network of its own, which is gone afterwards. @param timeoutMs that of the test runner unless told */
export function bridgeNetworkTest(
  name: string,
  body: (network: BridgeNetwork) => void | Promise<void>,
  timeoutMs?: number,
): void {
  test(name, async () => {
    using resources = new DisposableStack();
    await body(newBridgeNetwork(resources));
  }, timeoutMs);
}

/** Has the machine outside know the way to the containers, so that only rules keep anybody away. */
export function addRoutesToContainers({ outside }: BridgeNetwork): void {
  runShellInNetns(outside, "ip route add 10.88.0.0/16 via 192.0.2.1; ip -6 route add fd88::/64 via 2001:db8::1");
}

/** The same, and a server there on the port that {@linkcode reachesOutside} calls. */
export function serveOutside(network: BridgeNetwork): Disposable {
  addRoutesToContainers(network);
  return serveTcp(network.outside, "outside", 80);
}

/** Whether a container reaches port 80 of the machine outside over IPv4 and over IPv6. */
export async function reachesOutside(container: BridgeContainer, patienceMs?: number): Promise<boolean[]> {
  const ask = async (to: string) => (await requestTcp(container.netns, to, 80, patienceMs)) !== undefined;
  return [await ask("192.0.2.2"), await ask("2001:db8::2")];
}
