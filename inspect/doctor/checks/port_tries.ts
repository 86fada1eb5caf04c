import { familyOf, type Ip } from "../../../ffi/address.ts";
import { NF_INET_LOCAL_IN, NF_INET_LOCAL_OUT, NF_INET_PRE_ROUTING } from "../../../ffi/nft/uapi.ts";
import {
  type ConnectionOutcome,
  type DatagramOutcome,
  tryTcpConnection,
  tryUdpDatagram,
} from "../../../ffi/packet/probe.ts";
import { describeHostPort, familiesOf, type PortMapping, PROTOCOLS } from "../../../spec/port_mapping.ts";
import { reachesLoopback } from "../../../spec/port_mapping.ts";
import { advise, type Finding, ok } from "../finding.ts";
import { findContainerDrop, findLocalDrop, type LocalDrop, stoppedBy } from "../local_filters.ts";
import { publishedAddress } from "../published_address.ts";
import { addressesOfFamily, type ExaminedContainer, findPortTarget, gatewayLink, type Subject } from "../subject.ts";
import type { TryBudget } from "../try_budget.ts";
import { hasListener } from "./ports.ts";

/** For one answer; what answers at all needs some milliseconds. */
const CONNECT_TIMEOUT_MS = 500;
/** A refusal comes from this host: silence is the usual answer. */
const DATAGRAM_TIMEOUT_MS = 200;

/** Whether published ports answer, from the host by its own address and by 127.0.0.1. */
export function tryPorts(subject: Subject, budget: TryBudget): Finding[] {
  const tries = subject.containers.flatMap((container) => {
    const { publishedPorts } = container;
    return (publishedPorts?.mappings ?? []).filter(({ protocol }) => protocol !== "sctp").flatMap((mapping) =>
      familiesOf(mapping).filter((family) =>
        // A service may listen for one family only, which is reported elsewhere.
        addressesOfFamily(container, family).length > 0 && !publishedPorts!.hasConditions(family) &&
        hasListener(container, mapping, family)
      )
        .flatMap((family) => portTargets(subject, mapping, family, publishedPorts!.masqueradesCallers))
        .map((target) => ({ container, mapping, target }))
    );
  });
  return budget.tryEach(subject, "calls of published ports", tries, ({ container, mapping, target }) => {
    const { hostPort, protocol } = mapping;
    const outcome = subject.host.netns.run<ConnectionOutcome | DatagramOutcome>(() =>
      protocol === "tcp"
        ? tryTcpConnection(target, hostPort, CONNECT_TIMEOUT_MS)
        : tryUdpDatagram(target, hostPort, DATAGRAM_TIMEOUT_MS)
    );
    const sent = protocol === "tcp" ? "connection" : "datagram";
    const what = `${describeHostPort(mapping)}: a ${sent} of the host to ${target} ${OUTCOMES[outcome]}`;
    if (["connected", "answered", "silent"].includes(outcome)) return [ok(what)];
    const mend = advise("see whether the service accepts calls, and which rule counts them", "nft list ruleset");
    return [stoppedBy(what, findPortDrop(subject, container, mapping, target), mend)];
  });
}

/** One of those that the kernel chooses for callers. */
const CALLER_PORT = 50_000;

/** Looks on the way out of the host, into the container, and back. */
function findPortDrop(
  subject: Subject,
  container: ExaminedContainer,
  { protocol, containerPort }: PortMapping,
  source: Ip,
): LocalDrop | undefined {
  const destination = findPortTarget(container, familyOf(source));
  if (destination === undefined) return undefined;
  const packet = { source, destination, protocol: PROTOCOLS[protocol], destinationPort: containerPort, mark: 0 };
  const [hostLink = "", containerLink = ""] = [gatewayLink(subject, container)?.name, container.device?.name];
  const sent = { ...packet, iifname: "", oifname: hostLink, isDnat: true };
  const received = { ...packet, iifname: containerLink, oifname: "", isDnat: false, isToHost: true };
  const back = { source: destination, destination: source, destinationPort: CALLER_PORT, isReply: true };
  const answer = { ...packet, ...back, iifname: "", oifname: containerLink, isDnat: false };
  const answered = { ...answer, iifname: hostLink, oifname: "", isDnat: true, isToHost: true };
  const host = subject.host.netns;
  return findLocalDrop(host, NF_INET_LOCAL_OUT, sent) ??
    findContainerDrop(container, NF_INET_LOCAL_IN, received) ??
    findContainerDrop(container, NF_INET_LOCAL_OUT, answer) ??
    findLocalDrop(host, NF_INET_PRE_ROUTING, answered) ??
    findLocalDrop(host, NF_INET_LOCAL_IN, answered);
}

const OUTCOMES: Readonly<Record<ConnectionOutcome | DatagramOutcome, string>> = {
  connected: "is connected",
  answered: "is answered",
  silent: "is not refused",
  refused: "is refused",
  "timed out": "timed out",
  unreachable: "finds no way",
  blocked: "ends at a blackhole or prohibit route",
};

function portTargets(subject: Subject, mapping: PortMapping, family: 4 | 6, snat: boolean): Ip[] {
  const address = publishedAddress(subject, mapping, family);
  const loopback = family === 4 && snat && reachesLoopback(mapping) ? ["127.0.0.1" as Ip] : [];
  return [...new Set([...address ? [address] : [], ...loopback])];
}
