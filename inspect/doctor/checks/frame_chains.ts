import { familyOf, type Ip, ipBytes, ipFromBytes, ipOf } from "../../../ffi/address.ts";
import { FAMILY_NAMES } from "../../../ffi/nft/family_names.ts";
import {
  NF_INET_FORWARD,
  NF_INET_LOCAL_IN,
  NF_INET_LOCAL_OUT,
  NF_INET_POST_ROUTING,
  NF_INET_PRE_ROUTING,
  NF_NETDEV_EGRESS,
  NFPROTO_BRIDGE,
  NFPROTO_NETDEV,
} from "../../../ffi/nft/uapi.ts";
import { IPPROTO_ICMPV6, IPPROTO_TCP } from "../../../ffi/sys/uapi.ts";
import { findSourceAddress, PUBLIC_ADDRESS } from "../../../plugins/lib/links/reachability.ts";
import { familiesOf, type PortMapping, PROTOCOLS } from "../../../spec/port_mapping.ts";
import { shellCommand } from "../../../spec/shell_command.ts";
import { abbreviate, advise, broken, type Finding, ok } from "../finding.ts";
import { type ForeignChain, listFrameChains } from "../foreign_chains.ts";
import { acceptPolicyCommand, deleteRuleCommand } from "../nft_command.ts";
import { findDrop, type RulePlace, RulesetReader } from "../packet_walk.ts";
import { publishedAddress } from "../published_address.ts";
import { describeRulePlace } from "../rule_place_text.ts";
import {
  addressesOfFamily,
  type ExaminedContainer,
  findOutgoingLink,
  findPortTarget,
  gatewayLink,
  type Subject,
} from "../subject.ts";
import type { WalkedPacket } from "../walked_packet.ts";

/** Chains that see frames before or behind the chains for IP packets: at a link, or on a bridge. */
export function checkFrameChains(subject: Subject): Finding[] {
  const { host, containers } = subject;
  const onHost = listFrameChains(host.netns.nft);
  const ruleset = new RulesetReader(host.netns.nft);
  const drops = [
    ...onHost.length === 0
      ? []
      : containers.flatMap((container) => findDrops(ruleset, onHost, passagesOnHost(subject, container))),
    ...containers.flatMap(findContainerDrops),
  ];
  if (drops.length > 0) return [...Map.groupBy(drops, ({ place }) => place).values()].map(describeDrops);
  const names = onHost.map(({ family, table, name }) => `"${name}" of table "${FAMILY_NAMES[family]} ${table}"`);
  if (names.length === 0 || containers.length === 0) return [];
  return [ok(`frames are accepted by ${names.length === 1 ? "chain" : "chains"} ${abbreviate(names)}`)];
}

const EPHEMERAL_PORT = 40_000;

type Direction = "from" | "to" | "between";

interface Passage {
  /** `ingress` and `egress` are hooks of links. */
  readonly hook: "ingress" | "egress" | number;
  readonly link: string;
  readonly packet: FramePacket;
}

interface FramePacket extends WalkedPacket {
  readonly direction: Direction;
  readonly address: Ip;
}

function passagesOnHost(subject: Subject, container: ExaminedContainer): Passage[] {
  const port = container.hostVeth?.name;
  if (port === undefined) return [];
  const bridge = subject.bridge?.name;
  const gateway = gatewayLink(subject, container)?.name;
  const upper = [...new Set([bridge, gateway])].filter((name) => name !== undefined && name !== port) as string[];
  const arriving: Passage[] = packetsFrom(container).flatMap((packet) => [
    { hook: "ingress", link: port, packet },
    ...onBridge(bridge, [NF_INET_PRE_ROUTING, NF_INET_LOCAL_IN], port, { ...packet, iifname: port }),
    ...upper.map((link): Passage => ({ hook: "ingress", link, packet })),
  ]);
  const leaving: Passage[] = packetsTo(container).flatMap((packet) => [
    ...upper.map((link): Passage => ({ hook: "egress", link, packet })),
    ...onBridge(bridge, [NF_INET_LOCAL_OUT, NF_INET_POST_ROUTING], port, { ...packet, oifname: port }),
    { hook: "egress", link: port, packet },
  ]);
  return [...arriving, ...leaving, ...passagesOfUplink(subject, container), ...passagesBetween(subject, container)];
}

function onBridge(bridge: string | undefined, hooks: readonly number[], link: string, packet: FramePacket): Passage[] {
  if (bridge === undefined) return [];
  return hooks.map((hook) => ({ hook, link, packet: { ...packet, bridge } }));
}

/** There, packets have the host's address if they are masqueraded. */
function passagesOfUplink(subject: Subject, container: ExaminedContainer): Passage[] {
  const { host, masquerades } = subject;
  const calls = packetsFrom(container).filter(({ protocol, isArp }) => protocol === IPPROTO_TCP && !isArp);
  return calls.flatMap(({ sourceMac: _, ...packet }): Passage[] => {
    const { source: address, destination } = packet;
    const uplink = findOutgoingLink(host, destination)?.name;
    const source = masquerades ? findSourceAddress(host.netns, destination) : address;
    if (uplink === undefined || source === undefined) return [];
    const base = { ...frameBase("to", address), source: destination };
    const answer = { ...base, destination: source, destinationPort: EPHEMERAL_PORT, isReply: true };
    return [
      { hook: "egress", link: uplink, packet: { ...packet, source } },
      ...[answer, ...callsFromOutside(subject, container, base)].map((arriving): Passage => ({
        hook: "ingress",
        link: uplink,
        packet: arriving,
      })),
    ];
  });
}

/** Packets to the ports that the address has, before their translation. */
function callsFromOutside(
  subject: Subject,
  container: ExaminedContainer,
  base: Omit<FramePacket, "destination">,
): FramePacket[] {
  const family = familyOf(base.address);
  return publishedMappings(container, base.address).flatMap((mapping): FramePacket[] => {
    const { protocol, hostPort: destinationPort } = mapping;
    const destination = publishedAddress(subject, mapping, family);
    if (destination === undefined || isLoopback(destination)) return [];
    return [{ ...base, destination, protocol: PROTOCOLS[protocol], destinationPort, isToHost: true }];
  });
}

/** One other container stands for all. */
function passagesBetween({ bridge, neighbours }: Subject, container: ExaminedContainer): Passage[] {
  const port = container.hostVeth?.name;
  const other = neighbours.find((each) => each !== container && each.hostVeth !== undefined);
  if (!bridge || bridge.isolatesPorts || !port || !other) return [];
  return packetsFrom(container).flatMap((packet) => {
    const [destination] = addressesOfFamily(other, familyOf(packet.source));
    if (destination === undefined) return [];
    const frame = {
      ...packet,
      direction: "between" as const,
      destination,
      iifname: port,
      oifname: other.hostVeth!.name!,
    };
    return onBridge(bridge.name, [NF_INET_FORWARD], port, frame);
  });
}

/** What asks for the gateway's hardware address, and the first packet of a connection. */
function packetsFrom({ ips, device }: ExaminedContainer): FramePacket[] {
  const { mac } = device ?? {};
  return ips.flatMap(({ address, gateway }) => {
    const source = ipOf(address);
    const base = { ...frameBase("from", source), ...mac !== undefined && { sourceMac: mac } };
    const call = { ...base, source, destination: PUBLIC_ADDRESS[familyOf(source)], destinationPort: 443 };
    return gateway === undefined ? [call] : [call, { ...base, ...resolution(source, gateway) }];
  });
}

/** An answer, and calls of published ports. */
function packetsTo(container: ExaminedContainer): FramePacket[] {
  return container.ips.flatMap(({ address, gateway }) => {
    const destination = ipOf(address);
    const family = familyOf(destination);
    const base = { ...frameBase("to", destination), source: PUBLIC_ADDRESS[family], destination };
    const calls = publishedMappings(container, destination).map(({ protocol, containerPort }) => ({
      ...base,
      protocol: PROTOCOLS[protocol],
      destinationPort: containerPort,
      isDnat: true,
    }));
    const answer = { ...base, destinationPort: EPHEMERAL_PORT, isReply: true };
    return [answer, ...calls, ...gateway === undefined ? [] : [{ ...base, ...resolution(gateway, destination) }]];
  });
}

const isLoopback = (ip: Ip): boolean => ip.startsWith("127.") || ip === "::1";

function publishedMappings(container: ExaminedContainer, target: Ip): PortMapping[] {
  const family = familyOf(target);
  return (container.publishedPorts?.mappings ?? []).filter((mapping) =>
    findPortTarget(container, family) === target && familiesOf(mapping).includes(family)
  );
}

function frameBase(direction: Direction, address: Ip) {
  const link = { iifname: "", oifname: "" };
  return { ...link, direction, address, mark: 0, protocol: IPPROTO_TCP, destinationPort: 0, isDnat: false };
}

const NEIGHBOUR_SOLICITATION = 135;

/** Neighbour discovery of IPv6 asks a group of addresses. */
function resolution(source: Ip, target: Ip) {
  if (familyOf(target) === 4) return { source, destination: target, isArp: true };
  const group = Uint8Array.of(0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, ...ipBytes(target).subarray(13));
  return { source, destination: ipFromBytes(group), protocol: IPPROTO_ICMPV6, icmpType: NEIGHBOUR_SOLICITATION };
}

function findContainerDrops({ state, attachment, device, ...others }: ExaminedContainer): FrameDrop[] {
  const { nft } = state.netns;
  const chains = device?.name === undefined ? [] : listFrameChains(nft);
  if (chains.length === 0) return [];
  const container = { state, attachment, device, ...others };
  const link = device!.name!;
  const passages = [
    ...packetsFrom(container).map((packet): Passage => ({ hook: "egress", link, packet })),
    ...packetsTo(container).map((packet): Passage => ({ hook: "ingress", link, packet })),
  ];
  return findDrops(new RulesetReader(nft), chains, passages, attachment.netns);
}

interface FrameDrop {
  readonly packet: FramePacket;
  readonly chain: ForeignChain;
  readonly found: RulePlace;
  readonly place: string;
  /** Absent for the host's namespace. */
  readonly netnsPath: string | undefined;
}

/** Finds only what is certain: filters at links often have limits and lists. */
function findDrops(
  ruleset: RulesetReader,
  chains: readonly ForeignChain[],
  passages: readonly Passage[],
  netnsPath?: string,
): FrameDrop[] {
  return chains.flatMap((chain) => {
    const table = { family: chain.family, table: chain.table };
    return passages.filter((passage) => passes(chain, passage)).flatMap(({ packet, hook, link }): FrameDrop[] => {
      const names = hook === "ingress" ? { iifname: link } : hook === "egress" ? { oifname: link } : {};
      const found = findDrop(ruleset, table, chain, { ...packet, ...names });
      if (!found?.isCertain) return [];
      const where = netnsPath === undefined ? "" : ` in ${netnsPath}`;
      return [{ packet, chain, found, netnsPath, place: `${describeRulePlace(table, chain, found)}${where}` }];
    });
  });
}

function passes({ family, hook: at }: ForeignChain, { hook, link }: Passage): boolean {
  if (family === NFPROTO_BRIDGE) return at?.number === hook;
  const isEgress = family === NFPROTO_NETDEV && at?.number === NF_NETDEV_EGRESS;
  if (hook !== (isEgress ? "egress" : "ingress")) return false;
  const { names = [], prefixes = [] } = at?.devices ?? {};
  return at?.device === link || names.includes(link) || prefixes.some((prefix) => link.startsWith(prefix));
}

function describeDrops(drops: readonly FrameDrop[]): Finding {
  const [{ packet, chain, found, place, netnsPath }] = drops as [FrameDrop, ...FrameDrop[]];
  const directions = [...new Set(drops.map((drop) => drop.packet.direction))].filter((each) => each !== "between");
  const others = new Set(drops.map((drop) => drop.packet.address)).size - 1;
  const whose = `${packet.address}${others > 0 ? ` and ${others} more` : ""}`;
  const whom = directions.length === 0
    ? `between containers, such as ${whose},`
    : `${directions.join(" and ")} ${whose}`;
  const key = { family: chain.family, table: chain.table, chain: found.chain };
  const command = found.rule ? deleteRuleCommand(key, found.rule.handle) : acceptPolicyCommand(key);
  const prefix = netnsPath === undefined ? "" : `${shellCommand(["nsenter", `--net=${netnsPath}`])} `;
  const advice = found.rule
    ? "unless somebody means this rule, remove it"
    : "unless somebody means this policy, have the chain accept";
  return broken(`frames ${whom} are dropped by ${place}`, advise(advice, `${prefix}${command}`));
}
