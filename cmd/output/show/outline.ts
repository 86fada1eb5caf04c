/** Text, Graphviz and SVG show the same boxes and lines of a node. @module */
import { networkOf } from "../../../ffi/address.ts";
import { describeContainerId } from "../../../containers/engine_names.ts";
import { formatEndpoint } from "../../../inspect/endpoint.ts";
import type {
  ContainerInterface,
  Device,
  NodeTree,
  Port,
  RulesetChain,
  RulesetRule,
  RulesetTable,
  ShownAttachment,
  ShownLink,
  ShownNode,
  ShownPolicy,
  ShownPublishedPort,
  ShownRoute,
  Uplink,
} from "../../../inspect/show/node_tree.ts";

/** Boxes are drawn with their lines inside; lines have no children that are boxes. */
export type OutlineRole = "host" | "uplink" | "device" | "port" | "container" | "table" | "line";

export interface OutlineNode {
  readonly role: OutlineRole;
  readonly kind: string;
  readonly name: string;
  readonly details: readonly string[];
  /** Absent where it makes no sense. */
  readonly health?: "good" | "bad";
  readonly children: readonly OutlineNode[];
}

/** @param withRules also rules that count nothing, and sets */
export function outlineOf({ uplinks, devices, separate, nodes, tables }: NodeTree, withRules: boolean): OutlineNode {
  const isEmpty = devices.length + separate.length === 0;
  const uplinkNames = new Set(uplinks.map(({ name }) => name));
  return node("host", "host", "", [isEmpty ? "no container" : ""], [
    ...uplinks.map((uplink) => outlineUplink(uplink, devices.find(({ name }) => name === uplink.name))),
    ...devices.filter(({ name }) => !uplinkNames.has(name)).map(outlineDevice),
    ...separate.map(outlinePort),
    ...nodes.length > 0 ? [outlineNodes(nodes)] : [],
    ...tables.map((table) => outlineTable(table, withRules)),
  ]);
}

function node(
  role: OutlineRole,
  kind: string,
  name: string,
  details: readonly string[] = [],
  children: readonly OutlineNode[] = [],
  health?: OutlineNode["health"],
): OutlineNode {
  const visibleDetails = details.filter((detail) => detail !== "").map(visibleText);
  return { role, kind, name: visibleText(name), details: visibleDetails, children, ...health && { health } };
}

const line = (kind: string, name: string, details: readonly string[] = [], health?: OutlineNode["health"]) =>
  node("line", kind, name, details, [], health);

/** Escapes control, format and unassigned characters: names of other programs must not draw or hide anything. */
export function visibleText(text: string): string {
  return text.toWellFormed().replace(
    /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu,
    (char) => `\\u{${char.codePointAt(0)!.toString(16)}}`,
  );
}

/** @param device the same link, if containers share it */
export function outlineUplink(uplink: Uplink, device: Device | undefined): OutlineNode {
  const { addresses, gateways } = uplink;
  const shared = device ? [device.kind ?? "", networkText(device)] : [];
  return node(device ? "device" : "uplink", "uplink", uplink.name, [...shared, ...linkDetails(uplink)], [
    ...addresses.map((address) => line("address", address)),
    ...gateways.map((gateway) => line("route", "default", [`via ${gateway}`])),
    ...(device?.ports ?? []).map(outlinePort),
  ], linkHealth(uplink));
}

export function outlineDevice(device: Device): OutlineNode {
  const { kind = "link", addresses, ports } = device;
  return node("device", kind, device.name, [networkText(device), ...linkDetails(device)], [
    ...addresses.map((address) => line("address", address)),
    ...ports.map(outlinePort),
  ], linkHealth(device));
}

const MAX_NODES = 20;

function outlineNodes(nodes: readonly ShownNode[]): OutlineNode {
  const lines = nodes.slice(0, MAX_NODES).map(({ name, routes }) =>
    line(
      "node",
      name,
      routes.map(({ dst, gateway, link, isTunnelled }) =>
        `${dst} ${isTunnelled ? "in a tunnel to" : "via"} ${gateway} on ${link}`
      ),
    )
  );
  const more = nodes.length - lines.length;
  return node("device", "cluster", "", [`${nodes.length} other nodes`], [
    ...lines,
    ...more > 0 ? [line("node", `and ${more} more`, ["--json has them"])] : [],
  ]);
}

function networkText({ networks }: Device): string {
  return networks.length === 0 ? "" : `network ${networks.join(", ")}`;
}

function outlinePort({ link, attachment }: Port): OutlineNode {
  const container = attachment && outlineAttachment(attachment);
  if (!link) return container!;
  return node("port", "port", link.name, linkDetails(link), container ? [container] : [], linkHealth(link));
}

export function outlineAttachment(attachment: ShownAttachment): OutlineNode {
  const { network, containerId, name, state, reason = "", netns = "", interfaces } = attachment;
  const { publishedPorts, policy, elements } = attachment;
  const health = state === "attached" ? "good" : "bad";
  const sets = Map.groupBy(elements, ({ table }) => table);
  return node("container", "container", describeContainerId(containerId, name), [
    `network ${network}`,
    health === "bad" ? state : "",
    reason,
    netns,
  ], [
    ...interfaces.map(outlineInterface),
    ...publishedPorts.map(outlinePublishedPort),
    ...policy ? [outlinePolicy(policy)] : [],
    ...[...sets].map(([table, inTable]) =>
      line("elements", `in table ${table}`, [...new Set(inTable.map(({ set }) => withoutFamily(set)))])
    ),
  ], health);
}

export function outlinePolicy({ ingress, egress }: ShownPolicy): OutlineNode {
  const isClosed = ingress === "closed" || egress === "closed";
  const reason = isClosed ? ["policies are not known yet"] : [];
  return line("policy", `ingress ${ingress}`, [`egress ${egress}`, ...reason], isClosed ? "bad" : undefined);
}

const withoutFamily = (set: string): string => set.replace(/[46]$/, "");

export function outlineInterface(shown: ContainerInterface): OutlineNode {
  const { name, kind = "", master, addresses, routes } = shown;
  const masterText = master === undefined ? "" : `in ${master}`;
  return node("line", "interface", name, [kind, ...linkDetails(shown), masterText], [
    ...addresses.map((address) => line("address", address)),
    ...routes.filter((route) => !isConnected(route, shown)).map(outlineRoute),
  ], linkHealth(shown));
}

/** The kernel's route to the subnet of an address says nothing new. */
function isConnected({ dst, gateway, table }: ShownRoute, { addresses }: ContainerInterface): boolean {
  return gateway === undefined && table === undefined && addresses.some((address) => networkOf(address) === dst);
}

// The kernel's default: IP6_RT_PRIO_USER of net/ipv6_route.h.
const DEFAULT_IPV6_METRIC = 1024;

function outlineRoute({ dst, gateway, table, metric, mtu }: ShownRoute): OutlineNode {
  return line("route", dst.endsWith("/0") ? "default" : dst, [
    gateway === undefined ? "" : `via ${gateway}`,
    metric === undefined || (dst.includes(":") && metric === DEFAULT_IPV6_METRIC) ? "" : `metric ${metric}`,
    table === undefined ? "" : `table ${table}`,
    mtu === undefined ? "" : `mtu ${mtu}`,
  ]);
}

function outlinePublishedPort(port: ShownPublishedPort): OutlineNode {
  const { protocol, hostAddress, hostPort, containerPort, containerAddresses } = port;
  const name = `${hostAddress === undefined ? hostPort : formatEndpoint(hostAddress, hostPort)}/${protocol}`;
  const targets = containerAddresses.map((address) => `→ ${formatEndpoint(address, containerPort)}`);
  return targets.length > 0
    ? line("published", name, targets)
    : line("published", name, [`→ port ${containerPort}`, "not in table inet cni"], "bad");
}

export function outlineTable({ family, name, chains, sets }: RulesetTable, withRules: boolean): OutlineNode {
  const ruleCount = chains.reduce((sum, { rules }) => sum + rules.length, 0);
  const elementCount = sets.reduce((sum, { elements }) => sum + elements, 0);
  const details = [
    countText(chains.length, "chain"),
    countText(ruleCount, "rule"),
    sets.length === 0 ? "" : countText(elementCount, "element"),
  ];
  return node("table", "table", `${family} ${name}`, details, [
    ...chains.filter(({ rules }) => withRules || rules.some(isCounted)).map((chain) => outlineChain(chain, withRules)),
    ...withRules ? sets.map(({ name, elements }) => line("set", name, [countText(elements, "element")])) : [],
  ]);
}

const isCounted = ({ packets }: RulesetRule): boolean => packets !== undefined;

function outlineChain({ name, type, hook, priority, policy, rules }: RulesetChain, withRules: boolean): OutlineNode {
  const base = hook === undefined ? [] : [`${type}`, `hook ${hook}`, `priority ${priority}`, `policy ${policy}`];
  const shown = withRules ? rules : rules.filter(isCounted);
  return node("line", "chain", name, base, shown.map(outlineRule));
}

function outlineRule({ text, packets, bytes = 0 }: RulesetRule): OutlineNode {
  return line("rule", text, packets === undefined ? [] : [countText(packets, "packet"), countText(bytes, "byte")]);
}

function linkDetails({ state, mtu, packets }: ShownLink): string[] {
  return [
    state === "unknown" ? "" : state,
    mtu === undefined ? "" : `mtu ${mtu}`,
    packets ? `packets ${packets.received} in ${packets.sent} out` : "",
  ];
}

/** Some drivers tell no state. */
export const isWorking = ({ state }: ShownLink): boolean => state === "up" || state === "unknown";

const linkHealth = (link: ShownLink): OutlineNode["health"] => isWorking(link) ? "good" : "bad";

const countText = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`;
