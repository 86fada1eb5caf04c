/** Packets that are sent to see whether they arrive. */
import { PUBLIC_ADDRESS } from "../../../plugins/lib/links/reachability.ts";
import { familyOf, type Ip, type Mac, prefixLengthOf } from "../../../ffi/address.ts";
import { openArpSocket } from "../../../ffi/packet/arp.ts";
import { ICMP_ECHO, isPingAnswered } from "../../../ffi/packet/probe.ts";
import type { Link } from "../../../ffi/route/link.ts";
import * as neighbour from "../../../ffi/route/neighbour.ts";
import { NUD_FAILED, NUD_INCOMPLETE, NUD_REACHABLE } from "../../../ffi/route/uapi.ts";
import { routesWithGateways } from "../../../plugins/lib/links/configure_interface.ts";
import { NF_INET_LOCAL_IN, NF_INET_LOCAL_OUT, NF_INET_PRE_ROUTING } from "../../../ffi/nft/uapi.ts";
import { AF_INET6, IPPROTO_ICMP, IPPROTO_ICMPV6 } from "../../../ffi/sys/uapi.ts";
import { advise, broken, type Finding, ok, warning } from "../finding.ts";
import { findContainerDrop, findLocalDrop, stoppedBy } from "../local_filters.ts";
import type { WalkedPacket } from "../walked_packet.ts";
import { type Cause, Routing } from "../routing.ts";
import { resolutionMend } from "./neighbours.ts";
import {
  addressesOfFamily,
  describeContainer,
  type ExaminedContainer,
  findOutgoingLink,
  gatewayLink,
  type NetnsSnapshot,
  type Subject,
} from "../subject.ts";
import type { TryBudget } from "../try_budget.ts";

/** For one answer; what answers at all needs some milliseconds. */
const TIMEOUT_MS = 500;
/** IPv6 asks again for a neighbour after a second (RFC 4861, RETRANS_TIMER). */
const IPV6_TIMEOUT_MS = 1200;

const pingTimeout = (address: Ip): number => familyOf(address) === 4 ? TIMEOUT_MS : IPV6_TIMEOUT_MS;

/** The containers ask the wire for their gateways. One container asks for each. */
export function tryGateways(subject: Subject, budget: TryBudget): Finding[] {
  const questions = subject.containers.flatMap((container) =>
    container.device?.mac === undefined
      ? []
      : container.ips.flatMap(({ gateway }) => gateway === undefined ? [] : [{ container, gateway }])
  );
  const byGateway = Map.groupBy(
    questions,
    ({ container, gateway }) => `${gatewayLink(subject, container)?.index} ${gateway}`,
  );
  const all = [...byGateway.values()].map((group) => ({ ...group[0]!, asked: describeSample(1, group.length) }));
  const asked = all.slice(0, MAX_ASKED);
  return [
    ...budget.tryEach(subject, "gateways", asked, (question) => tryGateway(subject, question)),
    ...asked.length < all.length ? [ok(`${asked.length} of ${all.length} gateways were asked for`)] : [],
  ];
}

interface GatewayQuestion {
  readonly container: ExaminedContainer;
  readonly gateway: Ip;
  /** ` (8 of 20 containers asked)`, or empty if all are. */
  readonly asked: string;
}

function tryGateway(subject: Subject, { container, gateway, asked }: GatewayQuestion): Finding[] {
  const whose = `gateway ${gateway} of ${describeContainer(container)}`;
  if (familyOf(gateway) === 6) return tryGatewayPing(subject, container, gateway, whose, asked);
  const mac = askWire(container, container.device!, gateway);
  if (!mac) return describeSilentGateway(container, gateway, whose);
  const expected = subject.isRouted ? gatewayLink(subject, container)?.mac : undefined;
  if (expected === undefined || mac === expected) return [ok(`${whose} answers ARP${asked}`)];
  const what = `duplicate address: ${mac} answers for ${whose}, the host's is ${expected}`;
  return [broken(what, advise(`find the machine or container with the address ${mac}`))];
}

function describeSample(asked: number, all: number): string {
  return asked < all ? ` (${asked} of ${all} containers asked)` : "";
}

function describeSilentGateway(container: ExaminedContainer, gateway: Ip, whose: string): Finding[] {
  const mend = advise("look at what lies between: cni show, or tcpdump -ni any arp");
  return isUsedGateway(container, gateway) ? [broken(`${whose} does not answer ARP`, mend)] : [];
}

/** host-local names a gateway for every subnet, whether or not a route leads to it. */
function isUsedGateway({ attachment: { result }, ips }: ExaminedContainer, gateway: Ip): boolean {
  return routesWithGateways(result ?? {}, ips).some(({ gw }) => gw === gateway);
}

function tryGatewayPing(
  subject: Subject,
  container: ExaminedContainer,
  gateway: Ip,
  whose: string,
  asked: string,
): Finding[] {
  const answer = askIpv6Neighbour(container, gateway);
  if (answer === "ping") return [ok(`${whose} answers ping${asked}`)];
  if (!isUsedGateway(container, gateway)) return [];
  // Hosts often filter pings, which harms nobody.
  if (answer === "discovery") return [ok(`${whose} answers neighbour discovery, but no ping${asked}`)];
  if (answer === "unknown") return [warning(`${whose} does not answer ping`, resolutionMend(gateway))];
  const iifname = gatewayLink(subject, container)?.name ?? "";
  const [source = gateway] = addressesOfFamily(container, 6);
  const packet = { ...icmpPacket(source, gateway), iifname, oifname: "", isToHost: true };
  const drop = subject.isRouted ? findLocalDrop(subject.host.netns, NF_INET_LOCAL_IN, packet) : undefined;
  return [stoppedBy(`${whose} does not answer neighbour discovery`, drop, resolutionMend(gateway))];
}

function icmpPacket(source: Ip, destination: Ip): Omit<WalkedPacket, "iifname" | "oifname"> {
  const protocol = familyOf(destination) === 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6;
  return { source, destination, protocol, destinationPort: 0, mark: 0, isDnat: false };
}

/** What a neighbour answers. `unknown`: no ping, and the kernel relies for some seconds on what it knew. */
function askIpv6Neighbour(
  container: ExaminedContainer,
  target: Ip,
): "ping" | "discovery" | "nothing" | "unknown" {
  if (isPingAnsweredFrom(container.state, target)) return "ping";
  const state = findNeighbourState(container, target);
  // Earlier requests have just failed, and took this ping with them.
  if (state & NUD_FAILED && isPingAnsweredFrom(container.state, target)) return "ping";
  if (state & NUD_REACHABLE) return "discovery";
  return state & (NUD_INCOMPLETE | NUD_FAILED) ? "nothing" : "unknown";
}

function findNeighbourState({ state, device }: ExaminedContainer, target: Ip): number {
  const entries = neighbour.list(state.netns.route, AF_INET6);
  return entries.find(({ address, index }) => address === target && index === device?.index)?.state ?? NUD_FAILED;
}

function askWire({ state }: ExaminedContainer, { index, mac }: Link, address: Ip): Mac | undefined {
  return state.netns.run<Mac | undefined>(() => {
    using socket = openArpSocket(index, mac!);
    return socket.probe([address])?.mac;
  });
}

/** The answers of more containers tell little more. */
const MAX_ASKED = 8;

/** Whether another machine has a container's address too. */
export function tryDuplicates(subject: Subject, budget: TryBudget): Finding[] {
  if (!subject.bridge) return [];
  const all = subject.containers.flatMap((container) => {
    const { device } = container;
    return device?.mac ? addressesOfFamily(container, 4).map((ip) => ({ container, device, ip })) : [];
  });
  const asked = all.slice(0, MAX_ASKED);
  const findings = budget.tryEach(subject, "addresses", asked, ({ container, device, ip }) => {
    const mac = askWire(container, device, ip);
    if (!mac) return [];
    const what = `duplicate address: ${mac} on the wire answers for ${ip} of ${describeContainer(container)}`;
    return [broken(what, advise(`find the machine with the address ${mac}, or exclude ${ip} from the range`))];
  });
  if (findings.length > 0 || asked.length === all.length) return findings;
  return [ok(`no other machine has one of the ${asked.length} addresses that were asked for, of ${all.length}`)];
}

export function tryNeighbour(subject: Subject, budget: TryBudget): Finding[] {
  const { containers: [container], neighbours, bridge, families } = subject;
  if (!bridge || bridge.isolatesPorts || !container?.device?.mac) return [];
  const other = neighbours.find((candidate) => candidate.attachment.netns !== container.attachment.netns);
  if (!other) return [];
  const tries = families.flatMap((family) =>
    addressesOfFamily(other, family).slice(0, 1).map((target) => ({ container, target }))
  );
  return budget.tryEach(subject, "neighbours", tries, ({ target }) => tryNeighbourAddress(container, other, target));
}

function tryNeighbourAddress(container: ExaminedContainer, other: ExaminedContainer, target: Ip): Finding[] {
  const [who, text] = [describeContainer(container), `${target} of ${describeContainer(other)}`];
  const isIpv6 = familyOf(target) === 6;
  const answer = isIpv6 ? askIpv6Neighbour(container, target) : askWire(container, container.device!, target);
  if (answer === "unknown") return [warning(`${text} does not answer ping of ${who}`, resolutionMend(target))];
  if (answer !== undefined && answer !== "nothing") return [ok(`${who} reaches ${text}`)];
  const protocol = isIpv6 ? "neighbour discovery" : "ARP";
  const packet = { ...icmpPacket(target, target), iifname: other.device?.name ?? "", oifname: "", isToHost: true };
  const drop = isIpv6 ? findContainerDrop(other, NF_INET_LOCAL_IN, packet) : undefined;
  const mend = advise("look at VLANs and filters of the bridge: bridge vlan show; nft list ruleset");
  return [stoppedBy(`${text} does not answer ${protocol} of ${who}`, drop, mend)];
}

/** Whether containers get answers from where the host sends everything else. */
export function tryUplinkGateway(subject: Subject, budget: TryBudget): Finding[] {
  const { host, containers, masquerades, families } = subject;
  if (!masquerades) return [];
  return families.flatMap((family) => {
    const callers = containers.filter((container) => addressesOfFamily(container, family).length > 0);
    const gateway = findUplinkGateway(host, family);
    if (gateway === undefined) return [];
    const obstacle = budget.measure(() => describeHostObstacle(host, gateway));
    if (obstacle) return [obstacle];
    const asked = callers.slice(0, MAX_ASKED);
    const sample = describeSample(asked.length, callers.length);
    const tries = asked.map((container) => ({ container }));
    return budget.tryEach(subject, "calls of the uplink gateway", tries, ({ container }) => {
      const text = `the uplink gateway ${gateway}`;
      if (isPingAnsweredFrom(container.state, gateway)) {
        return [ok(`${describeContainer(container)} reaches ${text}${sample}`)];
      }
      const what = `${describeContainer(container)} gets no answer from ${text}, which answers the host`;
      const [source = gateway] = addressesOfFamily(container, family);
      const ping = { ...icmpPacket(source, gateway), icmpType: ICMP_ECHO[family].request, iifname: "", oifname: "" };
      const sent = { ...ping, oifname: container.device?.name ?? "" };
      const received = { ...ping, iifname: gatewayLink(subject, container)?.name ?? "" };
      const diversion = findDiversion(subject, container, source, gateway);
      if (diversion) return [broken(`${what}: its packets are sent elsewhere by ${diversion.what}`, diversion.remedy)];
      const drop = findContainerDrop(container, NF_INET_LOCAL_OUT, sent) ??
        findLocalDrop(host.netns, NF_INET_PRE_ROUTING, received);
      return [stoppedBy(what, drop, advise("see which rule counts its packets", "nft list ruleset"))];
    });
  });
}

function findDiversion(subject: Subject, container: ExaminedContainer, source: Ip, destination: Ip): Cause | undefined {
  const { state, device, attachment } = container;
  const sent = new Routing(state, attachment.netns).find({ source, destination });
  if (sent.oif !== device?.index) return sent.cause();
  const routing = new Routing(subject.host);
  const forwarded = routing.find({ source, destination, inLink: gatewayLink(subject, container) });
  return forwarded.oif === routing.find({ destination }).oif ? undefined : forwarded.cause();
}

function findUplinkGateway(host: NetnsSnapshot, family: 4 | 6): Ip | undefined {
  const uplink = findOutgoingLink(host, PUBLIC_ADDRESS[family]);
  return host.routes.find(({ dst, oif, gateway }) =>
    prefixLengthOf(dst) === 0 && familyOf(dst) === family && oif === uplink?.index && gateway
  )?.gateway;
}

function describeHostObstacle(host: NetnsSnapshot, gateway: Ip): Finding | undefined {
  const way = new Routing(host).find({ destination: gateway });
  const cause = way.oif === undefined ? way.cause() : undefined;
  if (cause) {
    return broken(`the host's packets to the uplink gateway ${gateway} are stopped by ${cause.what}`, cause.remedy);
  }
  if (isPingAnsweredFrom(host, gateway)) return undefined;
  const what = `the uplink gateway ${gateway} does not answer the host's ping, so nothing can be told`;
  return warning(what, advise("see whether it is there", `ip neigh show to ${gateway}`));
}

function isPingAnsweredFrom({ netns }: NetnsSnapshot, target: Ip): boolean {
  return netns.run<boolean>(() => isPingAnswered(target, pingTimeout(target)));
}
