import { familyOf, type Ip, ipOf } from "../../../ffi/address.ts";
import type { Flow } from "../../../ffi/conntrack/conntrack.ts";
import { type Listener, listListeners } from "../../../ffi/diag/listeners.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { isUp } from "../../../ffi/route/link.ts";
import { ignoreErrors } from "../../../ffi/sys/error.ts";
import { IPPROTO_UDP } from "../../../ffi/sys/uapi.ts";
import {
  describeHostPort,
  familiesOf,
  hostAddressOf,
  type PortMapping,
  PROTOCOLS,
} from "../../../spec/port_mapping.ts";
import { describeSocketOwners } from "../../../ffi/diag/socket_owners.ts";
import { CheckFailedError } from "../../../plugins/lib/protocol/check_failed.ts";
import { formatEndpoint } from "../../endpoint.ts";
import { advise, broken, careful, type Finding, ok, type StaleFlowsRepair, warning } from "../finding.ts";
import { listFlowsElsewhere } from "../stale_flows.ts";
import {
  containerPlace,
  describeContainer,
  type ExaminedContainer,
  findPortTarget,
  hasAddress,
  ipCommand,
  programOfPublisher,
  type Subject,
} from "../subject.ts";
import { missingRule } from "../missing_rule.ts";
import { hasTable } from "./ruleset.ts";

export function checkPorts(subject: Subject): Finding[] {
  // Another program's plugin has rules of its own.
  const hasElements = hasTable(subject) && programOfPublisher(subject) === undefined;
  return subject.containers.flatMap((container) => {
    const mappings = container.publishedPorts?.mappings ?? [];
    const problems = [
      ...hasElements ? checkMapElements(subject, container) : [],
      ...checkHostListeners(subject, container),
      ...mappings.flatMap((mapping) => [
        ...checkContainerListener(container, mapping),
        ...checkFlows(subject, container, mapping),
      ]),
    ];
    const led = mappings.filter((mapping) => isLed(container, mapping));
    if (problems.length > 0 || led.length === 0) return problems;
    const published = `${led.map(describeHostPort).join(", ")} of ${describeContainer(container)}`;
    return [
      ok(`${published} ${led.length === 1 ? "leads to a listening program" : "lead to listening programs"}`),
    ];
  });
}

/** Whether calls surely reach a program: the kernel may not tell, and the link or its addresses may be gone. */
function isLed(container: ExaminedContainer, mapping: PortMapping): boolean {
  const targets = familiesOf(mapping).flatMap((family) => findPortTarget(container, family) ?? []);
  const listeners = listPortListeners(container.state.netns, mapping, mapping.containerPort);
  const { device, state } = container;
  return device !== undefined && listeners !== undefined && targets.some((ip) => hasAddress(state, device, ip));
}

export function hasPublishedElements(subject: Subject, container: ExaminedContainer): boolean {
  return hasTable(subject) && checkMapElements(subject, container).length === 0;
}

/** Leaves out elements for 127.0.0.1: they depend on routes, which have a check of their own. */
function checkMapElements(subject: Subject, { publishedPorts, owner }: ExaminedContainer): Finding[] {
  if (!publishedPorts || publishedPorts.mappings.length === 0) return [];
  try {
    publishedPorts.checkRules(subject.host.netns, owner);
    return [];
  } catch (error) {
    if (!(error instanceof CheckFailedError)) throw error;
    return [missingRule(subject.network, `${error.difference} (${error.details})`)];
  }
}

function checkContainerListener(container: ExaminedContainer, mapping: PortMapping): Finding[] {
  const { containerPort, protocol } = mapping;
  const listeners = listPortListeners(container.state.netns, mapping, containerPort);
  // The kernel may lack the module that lists the protocol's sockets.
  if (!listeners) return [];
  const where = `${containerPort}/${protocol} in ${containerPlace(container.attachment)}`;
  const wanted = familiesOf(mapping).flatMap((family) => findPortTarget(container, family) ?? []);
  if (wanted.length === 0) return [];
  const advice = listenAdvice(wanted, containerPort);
  const mend = advise(advice);
  const published = describeHostPort(mapping);
  if (listeners.length === 0) {
    const what = `nothing listens on ${where}, which ${published} leads to`;
    return [isLoopbackDown(container) ? describeLoopbackDown(container, what, advice) : broken(what, mend)];
  }
  const unreached = wanted.filter((ip) => !listeners.some((listener) => takesCallsTo(listener, ip)));
  if (unreached.length === 0) return [];
  const addresses = [...new Set(listeners.map(({ address }) => address))].join(", ");
  if (unreached.length === wanted.length) {
    return [broken(`the service on ${where} listens on ${addresses} only, so ${published} cannot reach it`, mend)];
  }
  return [warning(`the service on ${where} listens on ${addresses}, not on ${unreached.join(", ")}`, mend)];
}

/** `::` takes calls of both families. */
function listenAdvice(wanted: readonly Ip[], port: number): string {
  const all = wanted.some((ip) => familyOf(ip) === 6) ? `[::]:${port}` : `0.0.0.0:${port}`;
  return `have the service listen on ${all} or ${wanted.map((ip) => formatEndpoint(ip, port)).join(" and ")}`;
}

const isLoopbackDown = ({ state: { links } }: ExaminedContainer): boolean =>
  links.some((device) => device.name === "lo" && !isUp(device));

/** Many services call themselves by 127.0.0.1 at their start, and end if that fails. */
function describeLoopbackDown({ attachment: { netns } }: ExaminedContainer, what: string, advice: string): Finding {
  const up = ipCommand(netns, "link", "set", "lo", "up");
  return broken(`${what}; "lo" is down there, so 127.0.0.1 fails`, advise(`set "lo" up, then ${advice}`, up));
}

function listPortListeners({ diag }: Netns, { protocol }: PortMapping, port: number): Listener[] | undefined {
  return ignoreErrors(["ENOENT"], () => listListeners(diag, PROTOCOLS[protocol], port, port));
}

/** Whether a program in the container takes calls of this family; true if the kernel cannot tell. */
export function hasListener(container: ExaminedContainer, mapping: PortMapping, family: 4 | 6): boolean {
  const listeners = listPortListeners(container.state.netns, mapping, mapping.containerPort);
  const target = findPortTarget(container, family);
  return !listeners ||
    target !== undefined && listeners.some((listener) => takesCallsTo(listener, target));
}

function takesCallsTo({ address, v6Only }: Listener, ip: Ip): boolean {
  if (address === ip) return true;
  return familyOf(ip) === 4 ? address === "0.0.0.0" || (address === "::" && !v6Only) : address === "::";
}

/**
 * Programs of engines that hold ports, by the kernel's name of at most 15 bytes. They serve no calls themselves; what
 * their engines translate is another check's.
 */
const ENGINE_PROGRAMS = [
  "docker-proxy",
  "dockerd",
  "containerd",
  "crio",
  "nomad",
  "rootlessport",
  "rootlessport-ch",
  "rootlesskit",
  "kube-proxy",
];

/** The published port takes its calls; ADD refuses it, but a program may have started later. */
function checkHostListeners({ host }: Subject, { owner, publishedPorts }: ExaminedContainer): Finding[] {
  const robbed = (publishedPorts?.listRobbedListeners(host.netns, owner.containerId) ?? []).filter(({ owners }) =>
    !owners.some(({ name }) => ENGINE_PROGRAMS.includes(name))
  );
  return robbed.map(({ mapping, listener, owners }) => {
    const program = describeSocketOwners(owners, listener.uid);
    const what = `${program} listens on ${describeHostPort(mapping)} too: calls go to the container, not to it`;
    const advice = "stop the program, or publish another port, unless an engine listens to reserve it";
    return warning(what, careful(advise(advice)));
  });
}

/** An entry from before the port was published goes on for as long as its peer sends. */
function checkFlows({ host }: Subject, container: ExaminedContainer, mapping: PortMapping): Finding[] {
  if (mapping.protocol !== "udp") return [];
  const { hostPort, containerPort } = mapping;
  const hostAddress = hostAddressOf(mapping);
  const hostAddresses = new Set(host.addresses.map(({ address }) => ipOf(address)));
  return familiesOf(mapping).flatMap((family) => {
    const address = findPortTarget(container, family);
    if (address === undefined) return [];
    const target = { family, protocol: IPPROTO_UDP, hostPort, container: address, containerPort };
    const flows = listFlowsElsewhere(host.netns.nft, target).filter(({ destination }) =>
      hostAddress === undefined ? hostAddresses.has(destination) : destination === hostAddress
    );
    const byDestination = Map.groupBy(flows, ({ destination }) => destination);
    return [...byDestination.values()].map((group) => describeStaleFlows(group, target));
  });
}

function describeStaleFlows(flows: readonly Flow[], target: Omit<StaleFlowsRepair, "kind" | "destination">): Finding {
  const { family, hostPort, container } = target;
  const [{ source, sourcePort, destination, replySource }] = flows as [Flow, ...Flow[]];
  const what = `stale conntrack: ${flows.length === 1 ? "an entry sends" : `${flows.length} entries send`} ` +
    `${source}:${sourcePort} -> ${destination}:${hostPort}/udp to ${replySource}, not to ${container}`;
  const mend = `conntrack -D -f ipv${family} -p udp --orig-dst ${destination} --orig-port-dst ${hostPort}`;
  return broken(what, mend, { kind: "conntrack", ...target, destination });
}
