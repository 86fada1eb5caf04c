import type { Netns } from "../../ffi/netns/netns.ts";
import { currentNetns } from "../../ffi/netns/netns.ts";
import type { Link } from "../../ffi/route/link.ts";
import { isJsonObject } from "../../spec/schema.ts";
import type { NamedAttachment } from "../../containers/engine_names.ts";
import { type ContainerSide, findContainerSide } from "./containers.ts";
import { byName, findUplinks, listNamespaceLinks, type NamespaceLinks } from "./links.ts";
import type { ClusterNode } from "../../cluster/node.ts";
import { listOtherNodes } from "./nodes.ts";
import type { Device, NodeTree, Port, ShownAttachment, ShownPublishedPort } from "./node_tree.ts";
import { publishedPortId, type ShownRuleset, showRuleset } from "./ruleset.ts";

export interface GatherOptions {
  /** Links of the host to show even if no attachment uses them, if they exist. */
  readonly deviceNames?: readonly string[];
  /** Also shows the ports of bridges that belong to no attachment. */
  readonly showsOtherPorts?: boolean;
  /** Names for other nodes of a cluster; absent: no other node is shown. */
  readonly nodes?: Iterable<ClusterNode>;
}

/** Looks only: changes nothing, and runs no plugin. @throws {SystemError} */
export function gatherNodeTree(
  attachments: readonly NamedAttachment[],
  { deviceNames = [], showsOtherPorts = false, nodes }: GatherOptions = {},
): NodeTree {
  using netns = currentNetns();
  const host = listNamespaceLinks(netns.route);
  const ruleset = showRuleset(netns.nft);
  const placed = attachments.map((attachment) => placeAttachment(attachment, netns, host, ruleset));
  const byDevice = Map.groupBy(placed, ({ device }) => device);
  for (const link of host.links.values()) {
    if (deviceNames.includes(link.name ?? "") && !byDevice.has(link)) byDevice.set(link, []);
  }
  const ends = new Set(placed.flatMap(({ hostEnd }) => hostEnd ?? []));
  const devices = [...byDevice].flatMap(([device, users]): Device[] => {
    if (!device) return [];
    const others = showsOtherPorts ? otherPorts(device, host, ends) : [];
    return [{
      ...host.show(device),
      networks: [...new Set(users.map(({ port }) => port.attachment!.network))].sort(),
      ports: [...users.map(({ port }) => port).sort(byAttachment), ...others],
    }];
  });
  return {
    uplinks: findUplinks(host),
    devices: devices.sort(byName),
    separate: (byDevice.get(undefined) ?? []).map(({ port }) => port).sort(byAttachment),
    nodes: nodes ? listOtherNodes(netns.route, host, nodes) : [],
    tables: ruleset.tables,
  };
}

interface PlacedAttachment {
  readonly port: Port;
  readonly hostEnd?: Link;
  /** The bridge, VRF or lower device. */
  readonly device: Link | undefined;
}

function placeAttachment(
  attachment: NamedAttachment,
  netns: Netns,
  host: NamespaceLinks,
  ruleset: ShownRuleset,
): PlacedAttachment {
  const side = findContainerSide(attachment, netns, host.links);
  const { hostEnd, lowerDevice } = side;
  const master = hostEnd?.master === undefined ? undefined : host.links.get(hostEnd.master);
  return {
    port: { ...hostEnd && { link: host.show(hostEnd) }, attachment: showAttachment(attachment, side, ruleset) },
    ...hostEnd && { hostEnd },
    device: lowerDevice ?? master,
  };
}

function showAttachment(
  attachment: NamedAttachment,
  { interfaces }: ContainerSide,
  ruleset: ShownRuleset,
): ShownAttachment {
  const { network, containerId, name, ifname, state, reason, netns } = attachment;
  const published = ruleset.publishedPortsOf(attachment);
  const present = new Set(published.map(publishedPortId));
  const policy = ruleset.policyOf(attachment);
  const missing = requestedPorts(attachment).filter((port) => !present.has(publishedPortId(port)));
  return {
    network,
    containerId,
    ifname,
    state,
    ...name !== undefined && { name },
    ...reason !== undefined && { reason },
    ...netns !== undefined && { netns },
    interfaces,
    publishedPorts: [...published, ...missing],
    ...policy && { policy },
    elements: ruleset.elementsOf(attachment),
  };
}

/** What the ADD asked portmap for. Another program's plugin may publish it elsewhere. */
function requestedPorts({ capabilityArgs: { portMappings } }: NamedAttachment): ShownPublishedPort[] {
  if (!Array.isArray(portMappings)) return [];
  return portMappings.filter(isJsonObject).flatMap(({ hostIP, hostPort, containerPort, protocol }) => {
    if (typeof hostPort !== "number" || hostPort === 0 || typeof containerPort !== "number") return [];
    const isOneAddress = typeof hostIP === "string" && !["", "0.0.0.0", "::"].includes(hostIP);
    return [{
      protocol: typeof protocol === "string" && protocol !== "" ? protocol.toLowerCase() : "tcp",
      ...isOneAddress && { hostAddress: hostIP },
      hostPort,
      containerPort,
      containerAddresses: [],
    }];
  });
}

function otherPorts(device: Link, host: NamespaceLinks, ends: ReadonlySet<Link>): Port[] {
  return [...host.links.values()].filter((link) => link.master === device.index && !ends.has(link))
    .map((link) => host.show(link)).sort(byName).map((link) => ({ link }));
}

function byAttachment({ attachment: a }: Port, { attachment: b }: Port): number {
  const key = (shown = a) => `${shown!.network} ${shown!.containerId} ${shown!.ifname}`;
  return key(a) < key(b) ? -1 : 1;
}
