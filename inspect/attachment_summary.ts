/** What people want to know of a new attachment: addresses, bridge, published ports. @module */
import { type Cidr, familyOf, type Ip, ipOf } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import * as link from "../ffi/route/link.ts";
import { findSourceAddress, PUBLIC_ADDRESS } from "../plugins/lib/links/reachability.ts";
import { type PortMapping, portMapping } from "../spec/port_mapping.ts";
import { targetAddresses } from "../plugins/lib/links/container_ips.ts";
import type { NetworkConfigList } from "../spec/network_config_list.ts";
import type { Attachment } from "../spec/plugin_config.ts";
import type { Result } from "../spec/result.ts";
import { array, type JsonObject } from "../spec/schema.ts";
import { formatEndpoint } from "./endpoint.ts";
import { createHostContext } from "../runtime/host_context.ts";

export interface AttachmentSummary {
  readonly network: string;
  readonly interfaces: readonly InterfaceSummary[];
  readonly ports: readonly PortSummary[];
}

interface InterfaceSummary {
  readonly name: string;
  readonly addresses: readonly Cidr[];
  readonly bridge?: string;
}

interface PortSummary {
  /** `http://192.0.2.7:8080`, or `192.0.2.7:5353/udp` if it is no port of HTTP. */
  readonly address: string;
  /** `10.63.0.2:80` */
  readonly target: string;
}

const portMappings = array(portMapping);

const URL_SCHEMES: Readonly<Record<number, string>> = { 80: "http", 8080: "http", 443: "https", 8443: "https" };

/** @throws {ConfigError} for port mappings that only another program's plugin understands */
export function summarizeAttachment(
  list: NetworkConfigList,
  { ifname }: Attachment,
  result: Result,
  capabilityArgs: JsonObject,
): AttachmentSummary {
  using host = createHostContext().host;
  const isPublished = list.plugins.some(({ capabilities }) => capabilities.includes("portMappings"));
  const mappings = isPublished ? portMappings.parse(capabilityArgs["portMappings"] ?? []) : [];
  return {
    network: list.name,
    interfaces: summarizeInterfaces(result, ifname, findBridge(host, result)),
    ports: mappings.flatMap((mapping) => summarizePort(host, mapping, targetAddresses(result, ifname).map(ipOf))),
  };
}

/** Results of old versions name no interface. */
function summarizeInterfaces({ interfaces = [], ips = [] }: Result, ifname: string, bridge?: string) {
  const all = interfaces.map(({ name, sandbox }, index) => ({
    name,
    isInContainer: sandbox !== undefined,
    addresses: ips.filter((ip) => ip.interface === index).map(({ address }) => address),
    ...bridge !== undefined && { bridge },
  }));
  const inContainer = all.filter(({ isInContainer }) => isInContainer);
  if (inContainer.length > 0) return inContainer;
  return [{ name: ifname, addresses: ips.map(({ address }) => address) }];
}

/** The plugin `bridge` names its bridge in the result. */
function findBridge(host: Netns, { interfaces = [] }: Result): string | undefined {
  return interfaces.find(({ name, sandbox }) =>
    sandbox === undefined && link.find(host.route, name)?.info?.kind === "bridge"
  )?.name;
}

/** Empty if the container has no address of its family. */
function summarizePort(
  host: Netns,
  { hostPort, containerPort, protocol, hostIP }: PortMapping,
  addresses: readonly Ip[],
): PortSummary[] {
  const isSpecific = hostIP !== undefined && hostIP !== "0.0.0.0" && hostIP !== "::";
  const target = addresses.find((address) => hostIP === undefined || familyOf(address) === familyOf(hostIP));
  if (target === undefined) return [];
  const hostAddress = isSpecific ? hostIP : findHostAddress(host, target);
  const scheme = protocol === "tcp" ? URL_SCHEMES[containerPort] : undefined;
  const address = formatEndpoint(hostAddress, hostPort);
  return [{
    address: scheme === undefined ? `${address}/${protocol}` : `${scheme}://${address}`,
    target: formatEndpoint(target, containerPort),
  }];
}

/** Others reach the host by its address towards the default route; without one, only the host and containers do. */
function findHostAddress(host: Netns, target: Ip): Ip | "localhost" {
  return findSourceAddress(host, PUBLIC_ADDRESS[familyOf(target)]) ?? findSourceAddress(host, target) ?? "localhost";
}
