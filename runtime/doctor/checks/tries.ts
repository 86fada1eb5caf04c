/** Packets that are sent to see whether they arrive. */
import { PUBLIC_ADDRESS } from "../../../plugins/lib/links/reachability.ts";
import { familyOf, type Ip, ipOf, type Mac, prefixLengthOf } from "../../../ffi/address.ts";
import { openArpSocket } from "../../../ffi/arp.ts";
import { type ConnectionOutcome, isPingAnswered, tryTcpConnection } from "../../../ffi/probe.ts";
import type { Link } from "../../../ffi/route/link.ts";
import { routesWithGateways } from "../../../plugins/lib/links/configure_interface.ts";
import { describeHostPort, familiesOf, hostAddressOf, type PortMapping } from "../../../plugins/portmap/config.ts";
import { reachesLoopback } from "../../../plugins/portmap/loopback.ts";
import { broken, type Finding, ok, warning } from "../finding.ts";
import {
  addressesOfFamily,
  describeContainer,
  type ExaminedContainer,
  findOutgoingLink,
  isRouteBlocked,
  type Subject,
} from "../subject.ts";

/** For one answer; what answers at all needs some milliseconds. */
const TIMEOUT_MS = 500;
/** IPv6 asks again for a neighbour after a second (RFC 4861, RETRANS_TIMER). */
const IPV6_TIMEOUT_MS = 1200;

const pingTimeout = (address: Ip): number => familyOf(address) === 4 ? TIMEOUT_MS : IPV6_TIMEOUT_MS;

/** Each container asks the wire for its gateway's address. */
export function tryGateways({ containers, isRouted, bridge, gatewayDevice }: Subject): Finding[] {
  return containers.flatMap((container) =>
    container.ips.flatMap(({ gateway }) => {
      if (gateway === undefined || !container.device?.mac) return [];
      const whose = `gateway ${gateway} of ${describeContainer(container)}`;
      if (familyOf(gateway) === 6) return tryGatewayPing(container, gateway, whose);
      const mac = askWire(container, container.device, gateway);
      if (!mac) return describeSilentGateway(container, gateway, whose);
      const expected = isRouted ? (bridge ? gatewayDevice : container.hostVeth)?.mac : undefined;
      if (expected === undefined || mac === expected) return [ok(`${whose} answers ARP`)];
      const what = `duplicate address: ${mac} answers for ${whose}, the host's is ${expected}`;
      return [broken(what, `find the machine or container with the address ${mac}`)];
    })
  );
}

function describeSilentGateway(container: ExaminedContainer, gateway: Ip, whose: string): Finding[] {
  const mend = "look at what lies between: cni show, or tcpdump -ni any arp";
  return isUsedGateway(container, gateway) ? [broken(`${whose} does not answer ARP`, mend)] : [];
}

/** host-local names a gateway for every subnet, whether or not a route leads to it. */
function isUsedGateway({ attachment: { result }, ips }: ExaminedContainer, gateway: Ip): boolean {
  return routesWithGateways(result ?? {}, ips).some(({ gw }) => gw === gateway);
}

function tryGatewayPing(container: ExaminedContainer, gateway: Ip, whose: string): Finding[] {
  if (container.state.netns.run<boolean>(() => isPingAnswered(gateway, pingTimeout(gateway)))) {
    return [ok(`${whose} answers ping`)];
  }
  return isUsedGateway(container, gateway) ? [warning(`${whose} does not answer ping`)] : [];
}

function askWire({ state }: ExaminedContainer, { index, mac }: Link, address: Ip): Mac | undefined {
  return state.netns.run<Mac | undefined>(() => {
    using socket = openArpSocket(index, mac!);
    return socket.probe([address])?.mac;
  });
}

/** Waiting in vain takes up to half a second each. */
const MAX_ASKED = 8;

/** Whether another machine has a container's address too. */
export function tryDuplicates({ containers, bridge }: Subject): Finding[] {
  if (!bridge) return [];
  return containers.slice(0, MAX_ASKED).flatMap((container) => {
    const { device } = container;
    if (!device?.mac) return [];
    return addressesOfFamily(container, 4).flatMap((ip) => {
      const mac = askWire(container, device, ip);
      if (!mac) return [];
      const what = `duplicate address: ${mac} on the wire answers for ${ip} of ${describeContainer(container)}`;
      return [broken(what, `find the machine with the address ${mac}, or exclude ${ip} from the range`)];
    });
  });
}

/** Whether one container reaches another of the network. */
export function tryNeighbour({ containers, neighbours, bridge }: Subject): Finding[] {
  if (!bridge || bridge.portIsolation) return [];
  const [container] = containers;
  const other = neighbours.find((candidate) => candidate.attachment.netns !== container?.attachment.netns);
  const [target] = other ? addressesOfFamily(other, 4) : [];
  if (!container?.device?.mac || !other || target === undefined) return [];
  const text = `${target} of ${describeContainer(other)}`;
  return askWire(container, container.device, target) ? [ok(`${describeContainer(container)} reaches ${text}`)] : [
    broken(
      `${text} does not answer ARP of ${describeContainer(container)}`,
      "look at VLANs and filters of the bridge",
    ),
  ];
}

/** Whether containers get answers from where the host sends everything else. */
export function tryUplinkGateway({ host, containers, masquerades, families }: Subject): Finding[] {
  if (!masquerades) return [];
  return families.flatMap((family) => {
    const uplink = findOutgoingLink(host, PUBLIC_ADDRESS[family]);
    const gateway = host.routes.find(({ dst, oif, gateway }) =>
      prefixLengthOf(dst) === 0 && familyOf(dst) === family && oif === uplink?.index && gateway
    )?.gateway;
    if (gateway === undefined) return [];
    if (isRouteBlocked(host, gateway)) {
      const what = `the host's route to the uplink gateway ${gateway} is a blackhole or prohibit route`;
      return [broken(what, `see which: ip route show match ${gateway}, or ip rule`)];
    }
    if (!host.netns.run<boolean>(() => isPingAnswered(gateway, pingTimeout(gateway)))) {
      return [warning(`the uplink gateway ${gateway} does not answer the host's ping, so nothing can be told`)];
    }
    const callers = containers.filter((container) => addressesOfFamily(container, family).length > 0);
    return callers.slice(0, MAX_ASKED).map((container) => {
      const isAnswered = container.state.netns.run<boolean>(() => isPingAnswered(gateway, pingTimeout(gateway)));
      const text = `the uplink gateway ${gateway}`;
      if (isAnswered) return ok(`${describeContainer(container)} reaches ${text}`);
      const what = `${describeContainer(container)} gets no answer from ${text}, which answers the host`;
      return broken(what, "see which rule counts its packets: nft list ruleset");
    });
  });
}

/** Whether published TCP ports answer, from the host by its own address and by 127.0.0.1. */
export function tryPorts(subject: Subject): Finding[] {
  return subject.containers.flatMap((container) => {
    const { portmap } = container;
    return (portmap?.mappings ?? []).filter(({ protocol }) => protocol === "tcp").flatMap((mapping) =>
      familiesOf(mapping).filter((family) =>
        addressesOfFamily(container, family).length > 0 && !portmap!.conditions[family]
      )
        .flatMap((family) => tryPort(subject, mapping, family, portmap!.snat))
    );
  });
}

const OUTCOMES: Readonly<Record<ConnectionOutcome, string>> = {
  connected: "is connected",
  refused: "is refused",
  "timed out": "timed out",
  unreachable: "finds no way",
  blocked: "ends at a blackhole or prohibit route",
};

function tryPort({ host }: Subject, mapping: PortMapping, family: 4 | 6, snat: boolean): Finding[] {
  const uplink = findOutgoingLink(host, PUBLIC_ADDRESS[family]);
  const own = host.addresses.find(({ address, index, scope }) =>
    index === uplink?.index && familyOf(address) === family && scope === 0
  );
  const address = hostAddressOf(mapping) ?? (own && ipOf(own.address));
  const loopback = family === 4 && snat && reachesLoopback(mapping) ? ["127.0.0.1" as Ip] : [];
  return [...new Set([...address ? [address] : [], ...loopback])].map((target) => {
    const outcome = host.netns.run<ConnectionOutcome>(() => tryTcpConnection(target, mapping.hostPort, TIMEOUT_MS));
    const what = `${describeHostPort(mapping)}: a connection of the host to ${target} ${OUTCOMES[outcome]}`;
    if (outcome === "connected") return ok(what);
    return broken(what, "see whether the service accepts connections, and which rule counts them: nft list ruleset");
  });
}
