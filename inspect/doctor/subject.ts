/** What all checks of a network get, looked up once. */
import { type Cidr, familyOf, type Ip, ipOf } from "../../ffi/address.ts";
import { nameOfNetnsPath } from "../../ffi/netns/named.ts";
import { type Netns, NetnsError } from "../../ffi/netns/netns.ts";
import * as address from "../../ffi/route/address.ts";
import * as link from "../../ffi/route/link.ts";
import * as route from "../../ffi/route/route.ts";
import * as rule from "../../ffi/route/rule.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import { AF_INET, AF_INET6 } from "../../ffi/sys/uapi.ts";
import { readSysctl } from "../../ffi/sys/sysctl.ts";
import type { BridgeModel } from "../../plugins/lib/model/network_model.ts";
import type { ForwardAccept, PluginModel } from "../../plugins/lib/model/plugin_model.ts";
import type { PublishedPorts } from "../../plugins/lib/model/published_ports.ts";
import { containerIps } from "../../plugins/lib/links/container_ips.ts";
import {
  configuredNetworks,
  findOverlap,
  type HostNetwork,
  type HostNetworks,
} from "../../plugins/lib/links/host_networks.ts";
import type { InterfaceState } from "../../plugins/lib/links/interface_differences.ts";
import {
  configuredSubnets,
  distinctFamilies,
  findRouteTo,
  PUBLIC_ADDRESS,
} from "../../plugins/lib/links/reachability.ts";
import type { Owner } from "../../plugins/lib/model/owner.ts";
import { findModel } from "../../plugins/registry.ts";
import { ConfigError, withLocation } from "../../spec/error.ts";
import {
  derivePluginConfig,
  type NetworkConfigList,
  parseNetworkConfigList,
  type PluginEntry,
} from "../../spec/network_config_list.ts";
import type { PluginConfig } from "../../spec/plugin_config.ts";
import type { IpConfig, Result } from "../../spec/result.ts";
import { listAttachments, type NetworkAttachment } from "../../runtime/attachments.ts";
import { describeContainerId, type EngineNames, type NamedAttachment } from "../../containers/engine_names.ts";
import { findEntry } from "../../runtime/cache.ts";
import { findLocation } from "../../runtime/call_plugin.ts";
import type { RuntimeContext } from "../../runtime/context.ts";
import { ContainerNetnsOpener } from "./container_netns.ts";
import { shellCommand } from "../../spec/shell_command.ts";

export interface NetnsSnapshot {
  /** That of a container is usable until another container's is looked up. */
  readonly netns: Netns;
  readonly links: readonly link.Link[];
  readonly addresses: readonly address.InterfaceAddress[];
  /** Routes of all tables but `local`. */
  readonly routes: readonly route.UnicastRoute[];
  /** `undefined` if the kernel lacks it. */
  sysctl(name: string): string | undefined;
}

/** An attached container whose namespace can be opened. */
export interface ExaminedContainer {
  readonly attachment: NamedAttachment & { readonly netns: string };
  readonly owner: Owner;
  readonly state: NetnsSnapshot;
  readonly device: link.Link | undefined;
  readonly hostVeth: link.Link | undefined;
  /** Addresses of its interface, by the ADD's result. */
  readonly ips: readonly IpConfig[];
  /** `undefined` if no plugin of the network publishes ports. */
  readonly publishedPorts: PublishedPorts | undefined;
  /** The configuration of its ADD; `undefined` if it cannot be read any more. */
  readonly addedWith: NetworkConfigList | undefined;
  /** The configuration has changed since its ADD. */
  readonly hasOldConfiguration: boolean;
}

export interface Subject {
  readonly runtime: RuntimeContext;
  /** What engines call containers; absent if nobody reads it. */
  readonly names: EngineNames | undefined;
  readonly network: NetworkConfigList;
  readonly host: NetnsSnapshot;
  /** Those in the cache: all, or those in the namespace that was asked for. */
  readonly attachments: readonly NamedAttachment[];
  readonly netnsPath: string | undefined;
  readonly containers: readonly ExaminedContainer[];
  /** Has also those of other namespaces than the one asked for. */
  readonly neighbours: readonly ExaminedContainer[];
  readonly bridge: BridgeModel | undefined;
  /** The link with the containers' gateway addresses: the bridge or a VLAN of it. */
  readonly gatewayDevice: link.Link | undefined;
  readonly isRouted: boolean;
  readonly masquerades: boolean;
  /** Whether the host's own networks may be the containers' too. */
  readonly allowsRouteOverlap: boolean;
  /** `undefined` if no plugin of the network lets its containers through other programs' chains. */
  readonly forwardAccept: ForwardAccept | undefined;
  readonly subnets: readonly Cidr[];
  readonly families: readonly (4 | 6)[];
}

/** Call it with all plugins loaded. @param netnsPath limits it to the containers in this namespace */
export function lookUpSubject(
  runtime: RuntimeContext,
  network: NetworkConfigList,
  netnsPath: string | undefined,
  resources: DisposableStack,
  names?: EngineNames,
): Subject {
  const host = takeNetnsSnapshot(runtime.hostContext.host);
  const opener = resources.use(new ContainerNetnsOpener(runtime.hostContext.openNetns));
  const listed = listAttachments(runtime.cacheDirectory, runtime.hostContext, network.name, runtime.log);
  const allAttachments: readonly NamedAttachment[] = names?.addTo(listed) ?? listed;
  const neighbours = allAttachments.flatMap((attachment) =>
    examineContainer(runtime, network, attachment, host, opener) ?? []
  );
  const isWanted = ({ netns = "" }: NetworkAttachment) => netnsPath === undefined || isSameNetns(netns, netnsPath);
  const containers = neighbours.filter(({ attachment }) => isWanted(attachment));
  const models = askModels(network, (model, config) => model.network?.(config.raw));
  const bridge = models.find((model) => model.bridge)?.bridge;
  const subnets = [...new Set(network.plugins.flatMap(({ raw }) => configuredSubnets(raw)))];
  const addresses = containers.flatMap(({ ips }) => ips.map((ip) => ip.address));
  return {
    runtime,
    names,
    network,
    host,
    attachments: allAttachments.filter(isWanted),
    netnsPath,
    containers,
    neighbours,
    bridge,
    gatewayDevice: host.links.find(({ name }) => name === bridge?.gatewayDevice),
    isRouted: models.some(({ isRouted }) => isRouted),
    masquerades: models.some(({ masquerades }) => masquerades),
    allowsRouteOverlap: models.some(({ allowsRouteOverlap }) => allowsRouteOverlap),
    forwardAccept: askModels(network, (model, config) => model.forwardAccept?.(config))[0],
    subnets,
    families: distinctFamilies([...subnets, ...addresses]),
  };
}

export function takeNetnsSnapshot(netns: Netns): NetnsSnapshot {
  return {
    netns,
    links: link.list(netns.route),
    addresses: address.list(netns.route),
    routes: [AF_INET, AF_INET6].flatMap((family) => route.list(netns.route, family)),
    sysctl: (name) => netns.run(() => readSysctl(name)),
  };
}

function takeContainerSnapshot(path: string, opener: ContainerNetnsOpener): NetnsSnapshot {
  return {
    ...takeNetnsSnapshot(opener.open(path)),
    get netns() {
      return opener.open(path);
    },
    sysctl: (name) => opener.open(path).run(() => readSysctl(name)),
  };
}

/** Whether a container's namespace cannot be opened. Without descriptors, it may be well. */
export function isNetnsGone(error: unknown): error is NetnsError {
  return error instanceof NetnsError &&
    !(error.cause instanceof SystemError && ["EMFILE", "ENFILE"].includes(error.cause.code));
}

function examineContainer(
  runtime: RuntimeContext,
  network: NetworkConfigList,
  attachment: NamedAttachment,
  host: NetnsSnapshot,
  opener: ContainerNetnsOpener,
): ExaminedContainer | undefined {
  const { netns: path, state: attachmentState, ifname, containerId, result } = attachment;
  if (!path || !result || attachmentState === "gone") return undefined;
  try {
    const state = takeContainerSnapshot(path, opener);
    const device = findDevice(state, attachment);
    const addedWith = findConfigurationOfAdd(runtime, network, attachment);
    const peer = device?.info?.kind === "veth" ? host.links.find(({ index }) => index === device.linkIndex) : undefined;
    return {
      attachment: { ...attachment, netns: path },
      owner: { network: network.name, containerId, ifname },
      state,
      device,
      hostVeth: peer?.info?.kind === "veth" && peer.linkIndex === device?.index ? peer : undefined,
      ips: containerIps(result, ifname),
      publishedPorts: findPublishedPorts(network, attachment, result),
      addedWith,
      hasOldConfiguration: addedWith !== network,
    };
  } catch (error) {
    if (!isNetnsGone(error)) throw error;
    runtime.log(error.message);
    return undefined;
  }
}

function findConfigurationOfAdd(
  { cacheDirectory }: RuntimeContext,
  network: NetworkConfigList,
  attachment: NetworkAttachment,
): NetworkConfigList | undefined {
  const { config = "" } = findEntry(cacheDirectory, attachment) ?? {};
  // Results of older programs hold no configuration.
  if (config === "" || config === network.text) return network;
  try {
    return parseNetworkConfigList(config);
  } catch (error) {
    if (error instanceof ConfigError) return undefined;
    throw error;
  }
}

/** `/var/run` is a link to `/run`. */
export function isSameNetns(path: string, other: string): boolean {
  const identity = path === other ? undefined : findStat(path)?.identity;
  return path === other || (identity !== undefined && identity === findStat(other)?.identity);
}

/** Containers rename interfaces, but keep the hardware address. */
function findDevice({ links }: NetnsSnapshot, { ifname, result }: NetworkAttachment): link.Link | undefined {
  const reported = result?.interfaces?.find(({ name, sandbox }) => name === ifname && sandbox);
  return links.find(({ name }) => name === ifname) ??
    links.find(({ mac }) => mac !== undefined && mac === reported?.mac?.toLowerCase());
}

/** What the models of the network's plugins tell, in the order of the plugins. */
function askModels<T>(
  network: NetworkConfigList,
  ask: (model: PluginModel, config: PluginConfig) => T | undefined,
): T[] {
  return network.plugins.flatMap((entry) => {
    const model = findModel(entry.type);
    const answer = model &&
      withLocation({ network: network.name }, () => ask(model, deriveConfig(network, entry, undefined)));
    return answer ?? [];
  });
}

export function deriveConfig(
  network: NetworkConfigList,
  entry: PluginEntry,
  attachment: Pick<NetworkAttachment, "capabilityArgs"> | undefined,
) {
  const { capabilityArgs } = attachment ?? {};
  return derivePluginConfig(network, entry, { command: "ADD", ...capabilityArgs && { capabilityArgs } });
}

function findPublishedPorts(
  network: NetworkConfigList,
  attachment: NetworkAttachment,
  result: Result,
): PublishedPorts | undefined {
  const entry = findPublisher(network);
  return entry &&
    findModel(entry.type)!.publishedPorts!(deriveConfig(network, entry, attachment), attachment.ifname, result);
}

function findPublisher({ plugins }: NetworkConfigList): PluginEntry | undefined {
  return plugins.find(({ type }) => findModel(type)?.publishedPorts !== undefined);
}

/** The program that is called to publish ports; `undefined` if that is built in or missing. */
export function programOfPublisher({ runtime, network }: Subject): string | undefined {
  const plugin = findPublisher(network);
  const location = plugin && findLocation(runtime, network, plugin);
  return location && "program" in location ? location.program : undefined;
}

export function findOutgoingLink({ netns, links }: NetnsSnapshot, destination: Ip): link.Link | undefined {
  const oif = findRouteTo(netns, destination)?.oif;
  return links.find(({ index }) => index === oif);
}

/** The host's own network that the subnets overlap, as an ADD would find it. */
export function findSubjectOverlap({ host, network, gatewayDevice, isRouted }: Subject): HostNetwork | undefined {
  if (!isRouted) return undefined;
  const wanted = network.plugins.flatMap(({ raw }) => configuredNetworks(raw));
  return findOverlap(hostNetworks(host), gatewayDevice, wanted);
}

export function hostNetworks({ addresses, routes, links }: NetnsSnapshot): HostNetworks {
  return {
    addresses,
    routes,
    findLink: (index) => links.find((each) => each.index === index),
    hasPorts: ({ index }) => links.some(({ master }) => master === index),
  };
}

export function isUplink({ host }: Subject, { index }: link.Link): boolean {
  return ([4, 6] as const).some((family) => findOutgoingLink(host, PUBLIC_ADDRESS[family])?.index === index);
}

/** The host's link with the gateway address of a container. */
export function gatewayLink(
  { bridge, gatewayDevice }: Pick<Subject, "bridge" | "gatewayDevice">,
  { hostVeth }: ExaminedContainer,
): link.Link | undefined {
  return bridge ? gatewayDevice : hostVeth;
}

/** `"eth0" of web (0123456789ab)`, `"eth0" of /run/netns/web` */
export function describeContainer({ attachment }: ExaminedContainer): string {
  return `"${attachment.ifname}" of ${containerPlace(attachment)}`;
}

/** `web (0123456789ab)`, or the path of its namespace if no engine has named it. */
export function containerPlace({ containerId, name, netns }: ExaminedContainer["attachment"]): string {
  return name === undefined ? netns : describeContainerId(containerId, name);
}

export function ipCommand(netns: string | undefined, ...words: readonly string[]): string {
  if (netns === undefined) return shellCommand(["ip", ...words]);
  const name = nameOfNetnsPath(netns);
  return shellCommand([...name === undefined ? ["nsenter", `--net=${netns}`, "ip"] : ["ip", "-n", name], ...words]);
}

export function interfaceState({ netns, links, addresses, routes }: NetnsSnapshot): InterfaceState {
  return {
    findLink: (index) => links.find((device) => device.index === index),
    addressesOf: (index) => addresses.filter((address) => address.index === index),
    routes: (family, table) => routes.filter((route) => familyOf(route.dst) === family && route.table === table),
    rules: () => rule.list(netns.route),
  };
}

export function hasAddress({ addresses }: NetnsSnapshot, device: link.Link, wanted: Cidr | Ip): boolean {
  return addresses.some((found) =>
    found.index === device.index && (found.address === wanted || ipOf(found.address) === wanted)
  );
}

export function findPortTarget({ publishedPorts }: ExaminedContainer, family: 4 | 6): Ip | undefined {
  const target = publishedPorts?.targets.find((address) => familyOf(address) === family);
  return target && ipOf(target);
}

export function addressesOfFamily(container: ExaminedContainer, family: 4 | 6): Ip[] {
  return container.ips.map((ip) => ipOf(ip.address)).filter((ip) => familyOf(ip) === family);
}
