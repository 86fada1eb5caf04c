import { formatEndpoint } from "../../../inspect/endpoint.ts";
import type {
  Device,
  NodeTree,
  Port,
  ShownAttachment,
  ShownLink,
  ShownPublishedPort,
  Uplink,
} from "../../../inspect/show/node_tree.ts";
import {
  isWorking,
  outlineAttachment,
  outlineDevice,
  outlineInterface,
  type OutlineNode,
  outlinePolicy,
  outlineTable,
  outlineUplink,
  visibleText,
} from "./outline.ts";

export interface Topology {
  readonly uplinks: readonly TopologyBox[];
  /** Bridges, VRFs, lower devices, and one box for links that the host routes. */
  readonly devices: readonly TopologyBox[];
  /** A container has one box, whatever the number of its networks. */
  readonly containers: readonly TopologyBox[];
  readonly tables: readonly TopologyBox[];
}

export type BoxRole = "uplink" | "device" | "container" | "table";

export interface TopologyBox {
  readonly role: BoxRole;
  readonly isBroken: boolean;
  /** The host routes to and from it. */
  readonly isRouted: boolean;
  readonly rows: readonly BoxRow[];
}

export interface BoxRow {
  /** Commas join them where a line has room for more than one. */
  readonly texts: readonly string[];
  readonly tone: "title" | "plain" | "address" | "published" | "faint" | "bad";
  readonly wire?: Wire;
}

export interface Wire {
  /** The place of a device in {@linkcode Topology.devices}, or calls from outside. */
  readonly from: number | "outside";
  readonly label: string;
  readonly isBroken: boolean;
}

interface PlacedPort {
  readonly link?: ShownLink;
  readonly attachment: ShownAttachment;
  readonly device?: number;
}

export function topologyOf(tree: NodeTree, withRules: boolean): Topology {
  const { tables } = tree;
  const uplinks = tree.uplinks.map(withoutPackets);
  const devices = tree.devices.map((device) => ({ ...withoutPackets(device), ports: device.ports.map(briefPort) }));
  const separate = tree.separate.map(briefPort);
  const shared = new Set(devices.map(({ name }) => name));
  const routed = separate.some(({ link }) => link) ? devices.length : undefined;
  const ports = [
    ...devices.flatMap(({ ports }, device) => ports.flatMap((port) => placePort(port, device))),
    ...separate.flatMap((port) => placePort(port, port.link ? routed : deviceOfNetwork(port, devices))),
  ];
  return {
    uplinks: uplinks.filter(({ name }) => !shared.has(name)).map((uplink) => boxOf(outlineUplink(uplink, undefined))),
    devices: [
      ...devices.map((device) => deviceBox(device, uplinks)),
      ...routed === undefined ? [] : [ROUTED],
    ],
    containers: [...Map.groupBy(ports, ({ attachment }) => attachment.containerId).values()].map(containerBox),
    tables: tables.map((table) => boxOf(outlineTable(table, withRules))),
  };
}

function briefPort({ link, attachment }: Port): Port {
  return {
    ...link && { link: withoutPackets(link) },
    ...attachment && { attachment: { ...attachment, interfaces: attachment.interfaces.map(withoutPackets) } },
  };
}

function withoutPackets<T extends ShownLink>({ packets: _, ...rest }: T): Omit<T, "packets"> {
  return rest;
}

const ROUTED: TopologyBox = {
  role: "device",
  isBroken: false,
  isRouted: true,
  rows: [{ texts: ["routes of the host"], tone: "title" }, { texts: ["each link by itself"], tone: "faint" }],
};

function placePort({ link, attachment }: Port, device: number | undefined): PlacedPort[] {
  return attachment ? [{ ...link && { link }, attachment, ...device !== undefined && { device } }] : [];
}

/** A container whose link is gone belongs to where its network is. */
function deviceOfNetwork({ attachment }: Port, devices: readonly Device[]): number | undefined {
  const found = devices.findIndex(({ networks }) => networks.includes(attachment!.network));
  return found < 0 || attachment!.state === "attached" ? undefined : found;
}

function deviceBox(device: Device, uplinks: readonly Uplink[]): TopologyBox {
  const others = { ...device, ports: device.ports.filter(({ attachment }) => !attachment) };
  const uplink = uplinks.find(({ name }) => name === device.name);
  return uplink ? { ...boxOf(outlineUplink(uplink, others)), role: "uplink" } : boxOf(outlineDevice(others));
}

function boxOf(outline: OutlineNode): TopologyBox {
  const { role, kind, name, details, health, children } = outline;
  const isBroken = health === "bad";
  return {
    role: role as BoxRole,
    isBroken,
    isRouted: children.some(({ kind }) => kind === "address"),
    rows: [
      { texts: [`${kind} ${name}`], tone: isBroken ? "bad" : "title" },
      ...details.length > 0 ? [{ texts: [details.join(", ")], tone: isBroken ? "bad" : "faint" } as const] : [],
      ...children.flatMap(rowsOf),
    ],
  };
}

function rowsOf({ kind, name, details, health, children }: OutlineNode): BoxRow[] {
  const texts = [kind === "address" ? name : `${kind} ${name}`, ...details];
  const tone = kind === "address" ? "address" : "faint";
  return [{ texts, tone: health === "bad" ? "bad" : tone }, ...children.flatMap(rowsOf)];
}

function containerBox(ports: readonly PlacedPort[]): TopologyBox {
  const sorted = ports.toSorted((a, b) => Number(hasDefaultRoute(b)) - Number(hasDefaultRoute(a)));
  const isBroken = sorted.some(({ attachment }) => attachment.state !== "attached");
  const { name } = outlineAttachment(sorted[0]!.attachment);
  return {
    role: "container",
    isBroken,
    isRouted: false,
    rows: [{ texts: [name], tone: isBroken ? "bad" : "title" }, ...sorted.flatMap(attachmentRows)],
  };
}

const hasDefaultRoute = ({ attachment }: PlacedPort): boolean =>
  attachment.interfaces.some(({ routes }) => routes.some(({ dst }) => dst.endsWith("/0")));

function attachmentRows({ attachment, link, device }: PlacedPort): BoxRow[] {
  const { network, ifname, state, reason = "", interfaces, publishedPorts, policy } = attachment;
  const isBroken = state !== "attached";
  const wire = device === undefined ? undefined : linkWire(device, link, attachment);
  const first: BoxRow = {
    texts: [visibleText(`${interfaces[0]?.name ?? ifname}  ${network}`)],
    tone: isBroken ? "bad" : "plain",
    ...wire && { wire },
  };
  const known = new Set(interfaces.flatMap(({ addresses }) => addresses.map((address) => address.split("/")[0])));
  return [
    first,
    ...isBroken ? [{ texts: [state, reason].filter(Boolean).map(visibleText), tone: "bad" } as const] : [],
    ...interfaces.flatMap((shown, i) => {
      const [own, ...others] = rowsOf(outlineInterface(shown));
      return i === 0 && isWorking(shown) ? others : [own!, ...others];
    }),
    ...publishedPorts.map((port) => publishedRow(port, known)),
    ...policy ? rowsOf(outlinePolicy(policy)) : [],
  ];
}

function linkWire(device: number, link: ShownLink | undefined, { state, interfaces }: ShownAttachment): Wire {
  const isWhole = (link === undefined || isWorking(link)) && interfaces.every(isWorking);
  return { from: device, label: visibleText(link?.name ?? ""), isBroken: state !== "attached" || !isWhole };
}

function publishedRow(port: ShownPublishedPort, known: ReadonlySet<string | undefined>): BoxRow {
  const { protocol, hostAddress, hostPort, containerPort, containerAddresses } = port;
  const isBroken = containerAddresses.length === 0;
  const from = hostAddress === undefined ? hostPort : formatEndpoint(hostAddress, hostPort);
  return {
    texts: isBroken ? [`port ${containerPort}`, "not in table inet cni"] : publishedTexts(port, known),
    tone: isBroken ? "bad" : "published",
    wire: { from: "outside", label: visibleText(`${from}/${protocol}`), isBroken },
  };
}

/** Addresses are told where they are not those of the container, or not one of each family. */
function publishedTexts(
  { containerPort, containerAddresses }: ShownPublishedPort,
  known: ReadonlySet<string | undefined>,
): readonly string[] {
  const isAll = containerAddresses.length === known.size && containerAddresses.every((address) => known.has(address));
  if (isAll) return [`port ${containerPort}`];
  return containerAddresses.map((address) => formatEndpoint(address, containerPort));
}
