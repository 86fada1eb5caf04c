import { type Cidr, containsIp, type Ip, ipOf, networksOverlap } from "../../ffi/address.ts";
import { currentNetns, type Netns } from "../../ffi/netns/netns.ts";
import * as address from "../../ffi/route/address.ts";
import * as link from "../../ffi/route/link.ts";
import { bridge as bridgeKind, veth } from "../../ffi/route/link_kinds.ts";
import * as rawRoute from "../../ffi/route/raw_route.ts";
import { RT_SCOPE_LINK, RT_TABLE_LOCAL, RTPROT_KERNEL, RTPROT_RA, RTPROT_REDIRECT } from "../../ffi/route/uapi.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { type BridgeConfig, bridgeConfig, isGateway, needsVlanGateway, vlanGatewayName } from "./config.ts";
import { findGatewayUser, GATEWAY_PROTOCOL } from "./gateway.ts";
import { isCreatedHere } from "../lib/links/created_link.ts";
import { removeLinkIfPresent } from "../lib/links/container_link.ts";
import { parseAlias } from "../lib/model/owner.ts";
import { ConfigError } from "../../spec/error.ts";
import { derivePluginConfig, type NetworkConfigList } from "../../spec/network_config_list.ts";
import { findValue, type JsonObject } from "../../spec/schema.ts";
import type { NetworkOfFile, NetworkRemoval, OtherNetwork, RemovalEffect } from "../lib/model/removal.ts";

type Log = NetworkRemoval["log"];

/** Routes of the kernel come and go with addresses and router advertisements. */
const KERNEL_PROTOCOLS: readonly number[] = [RTPROT_REDIRECT, RTPROT_KERNEL, RTPROT_RA];

/** Bridges that nothing but this network uses. Another one loses its gateway address; why it stays is logged. */
export function planBridgeRemoval(network: NetworkRemoval): RemovalEffect[] {
  const { list, readOthers, log } = network;
  using host = currentNetns();
  return bridgeConfigsOf(list).flatMap((config) => {
    const device = link.find(host.route, config.bridge);
    if (!device || !bridgeKind.of(device)) return [];
    const others = readOthers();
    const reason = findReasonToKeep(host, device, config, network, others) ?? findMissingMark(device);
    if (reason !== undefined) {
      log(`The bridge "${config.bridge}" stays: ${reason}`);
      return planGatewayRemoval(host, { device, config, network, others });
    }
    const gateway = needsVlanGateway(config) ? [vlanGatewayName(config)] : [];
    return [...gateway, config.bridge].map((name) => removeLinkEffect(name, list, config, log));
  });
}

function bridgeConfigsOf(list: NetworkConfigList): BridgeConfig[] {
  return list.plugins.filter(({ type }) => type === "bridge")
    .map((entry) => bridgeConfig.parse(derivePluginConfig(list, entry, { command: "ADD" }).raw));
}

function findReasonToKeep(
  host: Netns,
  device: link.Link,
  config: BridgeConfig,
  network: NetworkOfFile,
  others: readonly OtherNetwork[],
): string | undefined {
  const { list } = network;
  const sharing = others.find((other) => usesBridge(other.list, config.bridge));
  if (sharing) return `network "${sharing.list.name}" in "${sharing.file}" uses it too`;
  const port = link.list(host.route, { master: device.index }).find((candidate) =>
    parseAlias(candidate.alias)?.network !== list.name && !isVlanGatewayPort(host, candidate, config)
  );
  if (port) return `it has the port "${port.name}", which is not of this network`;
  const foreign = address.list(host.route, { index: device.index }).find((entry) =>
    entry.scope !== RT_SCOPE_LINK && !network.gateways().includes(ipOf(entry.address))
  );
  if (foreign) return `it has the address ${foreign.address}, which is no gateway of this network`;
  return findUpperLink(host, device, config) ?? findForeignRoute(host, device, config);
}

function findMissingMark(device: link.Link): string | undefined {
  if (isCreatedHere(device)) return undefined;
  return `cni did not create it, or was older and left no mark; "ip link delete ${device.name}" removes it`;
}

/** Counts it also as the lower device of macvlan, ipvlan and VLANs, which may be in containers. */
function usesBridge({ plugins }: NetworkConfigList, bridge: string): boolean {
  return plugins.some(({ type, raw }) => (type === "bridge" ? bridgeNameOf(raw) : findValue(raw, "master")) === bridge);
}

function bridgeNameOf(raw: JsonObject): unknown {
  return findValue(raw, "bridge") ?? bridgeConfig.parse({}).bridge;
}

/** The kernel removes a link together with its lower device. */
function findUpperLink(host: Netns, device: link.Link, config: BridgeConfig): string | undefined {
  const lower = indicesToRemove(host, device, config);
  // A veth's index there is its peer's, and with a number of a namespace it is another namespace's.
  const upper = link.list(host.route).find((candidate) =>
    !veth.of(candidate) && candidate.linkNetnsId === undefined && lower.includes(candidate.linkIndex ?? 0)
  );
  return upper && `the ${upper.info?.kind ?? "interface"} "${upper.name}" is on top of it`;
}

function findForeignRoute(host: Netns, device: link.Link, config: BridgeConfig): string | undefined {
  const removed = indicesToRemove(host, device, config);
  const foreign = rawRoute.list(host.route).find((route) =>
    rawRoute.linksOf(route).some((index) => removed.includes(index)) && !isKernelRoute(route)
  );
  return foreign && `the route to ${rawRoute.destinationOf(foreign)}, which cni did not add, uses it`;
}

/** Old kernels give their own multicast routes in the table local another protocol. */
function isKernelRoute(route: rawRoute.RawRoute): boolean {
  return KERNEL_PROTOCOLS.includes(route.protocol) || rawRoute.tableOf(route) === RT_TABLE_LOCAL;
}

function indicesToRemove(host: Netns, device: link.Link, config: BridgeConfig): number[] {
  const gateway = needsVlanGateway(config) ? link.find(host.route, vlanGatewayName(config)) : undefined;
  return [device.index, ...gateway ? [gateway.index] : []];
}

/** The other end is the host's interface in the VLAN. */
function isVlanGatewayPort(host: Netns, port: link.Link, config: BridgeConfig): boolean {
  if (!needsVlanGateway(config) || !veth.of(port) || port.linkIndex === undefined) return false;
  return link.find(host.route, port.linkIndex)?.name === vlanGatewayName(config);
}

interface StayingBridge {
  readonly device: link.Link;
  readonly config: BridgeConfig;
  readonly network: NetworkRemoval;
  readonly others: readonly OtherNetwork[];
}

function planGatewayRemoval(host: Netns, bridge: StayingBridge): RemovalEffect[] {
  const { device, config, network, others } = bridge;
  const holder = needsVlanGateway(config) ? link.find(host.route, vlanGatewayName(config)) : device;
  if (!holder || !isGateway(config)) return [];
  const gateways = network.gateways();
  const shared = others.filter(({ list }) => usesBridge(list, config.bridge)).flatMap(tryGateways);
  const present = address.list(host.route, { index: holder.index });
  return present.filter((entry) =>
    gateways.includes(ipOf(entry.address)) && !shared.includes(ipOf(entry.address)) && isOwnAddress(entry, device) &&
    !hasNeighbour(entry, present) && !isUsedByRoute(host, entry)
  ).map((entry) => removeGatewayEffect(bridge, holder, entry.address));
}

/** Before Linux 5.18, addresses tell nothing of who added them. */
function isOwnAddress({ protocol }: address.InterfaceAddress, device: link.Link): boolean {
  return protocol === GATEWAY_PROTOCOL || (protocol === 0 && isCreatedHere(device));
}

/** The kernel removes the other addresses of a subnet together with the first one. */
function hasNeighbour(entry: address.InterfaceAddress, present: readonly address.InterfaceAddress[]): boolean {
  return present.some((other) => other !== entry && networksOverlap(other.address, entry.address));
}

/** The kernel removes routes with such a source, and next hops become unreachable. */
function isUsedByRoute(host: Netns, entry: address.InterfaceAddress): boolean {
  return rawRoute.list(host.route).some((route) =>
    !isKernelRoute(route) &&
    (route.prefsrc === ipOf(entry.address) ||
      rawRoute.nextHopGateways(route).some((gateway) => containsIp(entry.address, gateway)))
  );
}

/** A container that was attached meanwhile, or one of another program, keeps the address. */
function removeGatewayEffect(
  { device, network: { log } }: StayingBridge,
  holder: link.Link,
  cidr: Cidr,
): RemovalEffect {
  return {
    action: "remove-address",
    target: cidr,
    description: `remove the gateway address ${cidr} from "${holder.name}"`,
    carryOut() {
      using host = currentNetns();
      const user = findGatewayUser(host, { bridge: device, port: "", device: holder }, cidr);
      if (user) log(`The gateway address ${cidr} stays: a container behind "${user.name}" is in its subnet`);
      else ignoreErrors(["EADDRNOTAVAIL", "ENODEV"], () => address.remove(host.route, holder.index, cidr));
      return user === undefined;
    },
  };
}

/** A network whose configuration is wrong has no gateway. */
function tryGateways(network: NetworkOfFile): readonly Ip[] {
  try {
    return network.gateways();
  } catch (error) {
    if (error instanceof ConfigError) return [];
    throw error;
  }
}

/** A container that was attached meanwhile keeps the bridge. */
function removeLinkEffect(name: string, list: NetworkConfigList, config: BridgeConfig, log: Log): RemovalEffect {
  const kind = name === config.bridge ? "bridge" : "interface";
  return {
    action: "remove-link",
    target: name,
    description: `remove the ${kind} "${name}"`,
    carryOut() {
      using host = currentNetns();
      const bridge = link.find(host.route, config.bridge);
      const port = bridge &&
        link.list(host.route, { master: bridge.index }).find((candidate) =>
          !isVlanGatewayPort(host, candidate, config)
        );
      if (!port) {
        removeLinkIfPresent(host, name);
        return true;
      }
      const owner = parseAlias(port.alias);
      log(
        `The ${kind} "${name}" stays: ${
          owner?.network === list.name ? "a container was attached meanwhile" : "it has ports"
        }`,
      );
      return false;
    },
  };
}
