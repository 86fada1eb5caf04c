/**
 * Configurations, and what has to be there for them, which the fixtures of several plugins share.
 *
 * @module
 */
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import * as link from "../ffi/route/link.ts";
import { awaitLinkOperational } from "../plugins/lib/links/configure_interface.ts";
import type { FixtureNode } from "./fixture.ts";
import type { JsonDocument } from "./json_document.ts";
import { ipShow, runIp } from "./netns.ts";

/** host-local with one subnet, 10.5.0.0/24, its state in the node's directory. */
export const hostLocalConfig = ({ directory }: Pick<FixtureNode, "directory">, more: object = {}): JsonDocument => ({
  type: "host-local",
  dataDir: join(directory, "ipam"),
  subnet: "10.5.0.0/24",
  routes: [{ dst: "0.0.0.0/0" }],
  ...more,
});

/** bridge `br5` with these addresses. */
export const bridgeTestConfig = (node: FixtureNode, more: object = {}): JsonDocument => ({
  bridge: "br5",
  isGateway: true,
  ipam: hostLocalConfig(node),
  ...more,
});

/** The result of an earlier plugin: eth0 with 10.5.0.9/24. It says its version, so that it fits into requests of any other. */
export const earlierResult = ({ container }: Pick<FixtureNode, "container">): JsonDocument => ({
  cniVersion: "1.1.0",
  interfaces: [{ name: "eth0", sandbox: container.path }],
  ips: [{ address: "10.5.0.9/24", interface: 0 }],
});

/** portmap behind such a plugin. */
export const portmapConfig = (node: FixtureNode, more: object = {}): JsonDocument => ({
  prevResult: earlierResult(node),
  runtimeConfig: { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }] },
  ...more,
});

/** Gives the container an eth0 that is up and has the address of {@linkcode earlierResult}. */
export function addContainerInterface({ container }: FixtureNode): void {
  runIp(container, "link add eth0 type veth peer name peer0");
  const both = ["eth0", "peer0"];
  // No link-local addresses and no state that is not final: both would change while the test looks.
  for (const name of both) runIp(container, `link set ${name} addrgenmode none up`);
  for (const name of both) awaitLinkOperational(container, link.get(container.route, name));
  runIp(container, "addr add 10.5.0.9/24 dev eth0");
}

/** Gives the host a device `up0`, which is up, and a configuration of a plugin that puts a link on it. */
export function lowerDeviceConfig(node: FixtureNode, more: object = {}): JsonDocument {
  // The far end is down, so that nobody is asked for addresses.
  runIp(node.host, "link add up0 type veth peer name far0", "link set up0 addrgenmode none up");
  return { master: "up0", ipam: hostLocalConfig(node), ...more };
}

/** Lines of the shell that bring up the far end of {@linkcode lowerDeviceConfig}. */
export const FAR_END_UP: readonly string[] = ["ip link set far0 addrgenmode none up"];

/** Invalid values of the keys of all plugins that put a link on a lower device. */
export const INVALID_LOWER_DEVICE: readonly object[] = [
  ...["master", "mtu", "linkInContainer"].map((key) => ({ [key]: {} })),
  { master: "" },
  { master: "nosuch" },
  { master: "up0\0" },
  { master: "x".repeat(1000) },
  { master: "up0", linkInContainer: true },
  { mtu: "1500" },
  { mtu: -1 },
  { mtu: 1501 },
  { mtu: 1.5 },
  { linkInContainer: "yes" },
];

const SUBNETS = ["10.66.0.0/16", "fd66::/64"];

/** host-local with an address of each family, as it is typical. */
export const typicalIpam = (stateDirectory: string, subnets: readonly string[] = SUBNETS): JsonDocument => ({
  type: "host-local",
  dataDir: join(stateDirectory, "networks"),
  ranges: subnets.map((subnet) => [{ subnet }]),
});

/**
 * The same with an IPv4 address only. Where others may hold an IPv6 address, ADD waits until the kernel has asked them: by the clock, and
 * with messages that come as they may.
 */
export const typicalIpv4Ipam = (stateDirectory: string): JsonDocument =>
  typicalIpam(stateDirectory, SUBNETS.slice(0, 1));

/** A link as ip(8) shows it with its addresses; `undefined` if there is none. */
export function findShownLink(netns: Netns, name = "eth0"): JsonDocument {
  return ipShow(netns, "addr", "show").find(({ ifname }) => ifname === name);
}

/** The global addresses of a shown link, without prefix lengths. */
export function shownAddresses(shown: JsonDocument): string[] {
  return shown?.addr_info.filter(({ scope }: JsonDocument) => scope === "global").map(({ local }: JsonDocument) =>
    local
  );
}

/** Observes the kind of the container's eth0, these attributes of the kind, and the interface's addresses. */
export const observeKind = (...attributes: readonly string[]) => ({ container }: FixtureNode): unknown[] => {
  const shown = findShownLink(container);
  const { info_kind: kind, info_data: data = {} } = shown?.linkinfo ?? {};
  return [kind, ...attributes.map((name) => data[name]), shownAddresses(shown)];
};
