/** The network between the nodes of a cluster: what its part says, and packets to other nodes. @module */
import { type Cidr, containsIp, familyOf, type Ip, ipOf, networkOf, nextIp } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { arrivalProbe, findAnswered, pingProbe, type Probe, synProbe, tcpProbe } from "../../../ffi/packet/probe.ts";
import { matchAll } from "../../../ffi/route/route.ts";
import { underlayOf } from "../../../cluster/network/plan.ts";
import { tunnelAddress } from "../../../cluster/network/tunnel.ts";
import type { LeftRoute } from "../../../cluster/network/left_route.ts";
import { TUNNEL_LINK } from "../../../cluster/network/settings.ts";
import type { ClusterNode } from "../../../cluster/node.ts";
import { type ClusterStatus, DEFAULT_STATUS_DIRECTORY, findClusterStatus } from "../../../cluster/status.ts";
import { nodesFilePath, readNodesFile } from "../../../cluster/stored_nodes.ts";
import { findValue } from "../../../spec/schema.ts";
import { sysctlWord } from "../../../ffi/sys/sysctl.ts";
import { abbreviate, advise, broken, careful, type Finding, ok, type Remedy, warning } from "../finding.ts";
import { describeSilence } from "../silent_part.ts";
import { findStrictRpFilter } from "../strict_rp_filter.ts";
import { describeContainer, ipCommand, type Subject } from "../subject.ts";
import type { TryBudget } from "../try_budget.ts";

const FAILURES = "see docs/kubernetes.md, failures";

/** Absent if the network is not that of a cluster. */
export const findStatus = ({ network }: Subject): ClusterStatus | undefined => {
  const status = findClusterStatus(DEFAULT_STATUS_DIRECTORY);
  return status?.network === network.name ? status : undefined;
};

/** Whether the network has the MTU of its cluster, which pods that run get too. Its file may have one of its own. */
export function hasClusterMtu(subject: Subject): boolean {
  const mtu = findStatus(subject)?.mtu;
  return mtu !== undefined && subject.network.plugins.some(({ raw }) => raw["mtu"] === mtu);
}

export function checkCluster(subject: Subject): Finding[] {
  const status = findStatus(subject);
  if (!status) return [];
  return [
    ...describeNodes(status),
    ...checkMasquerading(subject, status),
    ...checkFormerRanges(subject, status.podCidrs ?? []),
  ];
}

export function describeNodes(status: ClusterStatus): Finding[] {
  const { apiProblem, heardAtMs, problems, leftRoutes = [], nodes, isSynced } = status;
  const silence = describeSilence("cluster", status);
  if (silence.length > 0) return silence;
  const since = heardAtMs === undefined ? "" : ` since ${new Date(heardAtMs).toISOString()}`;
  return [
    ...problems.map((problem) => broken(problem, remedyFor(leftRoutes.find((left) => left.problem === problem)))),
    ...apiProblem === undefined ? [] : [
      warning(
        `the API server was not heard${since}: ${apiProblem}`,
        advise("look at the API server, and at the way there; known nodes are reached meanwhile"),
      ),
    ],
    ...isSynced && problems.length === 0 ? [ok(`routes lead to ${nodes} other nodes`)] : [],
  ];
}

function remedyFor(left: LeftRoute | undefined): Remedy {
  if (!left) return advise(FAILURES);
  const { dst, gateway, link } = left;
  const family = familyOf(dst) === 6 ? ["-6"] : [];
  return careful(advise(
    "unless a program that runs has made it, remove it: within five seconds, the cluster's leads the same way",
    ipCommand(undefined, ...family, "route", "del", dst, "via", gateway, "dev", link, "proto", "boot"),
  ));
}

/** Where somebody else routes, only plugins masquerade what leaves the cluster. */
export function checkMasquerading({ network }: Subject, { routes }: Pick<ClusterStatus, "routes">): Finding[] {
  const types = network.plugins.filter(({ raw }) => findValue(raw, "ipMasq") === true).map(({ type }) => `"${type}"`);
  if (routes === undefined || types.length === 0) return [];
  return [warning(
    `"ipMasq" of plugin ${types.join(" and ")} hides pods from pods of other nodes, and from their policies: ` +
      "they see this node's address",
    advise(
      "leave it out of the network that the cluster gives to its nodes, then replace the pods that run: " +
        "what leaves the cluster is masqueraded without it",
    ),
  )];
}

/** Where a Node was made again with other ranges, pods that run keep their addresses. A network may have ranges of its own. */
export function checkFormerRanges({ containers, subnets }: Subject, podCidrs: readonly Cidr[]): Finding[] {
  if (!subnets.some((subnet) => podCidrs.includes(subnet))) return [];
  const former = containers.flatMap((container) => {
    const ips = container.ips.map(({ address }) => ipOf(address))
      .filter((ip) => !podCidrs.some((cidr) => containsIp(cidr, ip)));
    return ips.length === 0 ? [] : [`${describeContainer(container)} (${ips.join(", ")})`];
  });
  if (former.length === 0) return [];
  return [warning(
    `pods have addresses that are not in this node's ranges ${podCidrs.join(" and ")}: ${abbreviate(former)}`,
    advise("other nodes do not reach them: delete these pods, so that others with new addresses take their place"),
  )];
}

/** Many at once, as long as the time lasts. */
export function tryOtherNodes(subject: Subject, budget: TryBudget): Finding[] {
  const status = findStatus(subject);
  if (!status) return [];
  const { runtime, host } = subject;
  const known = readNodesFile(nodesFilePath(runtime.cacheDirectory), runtime.log)?.nodes ?? [];
  const own = known.find(({ name }) => name === status.node);
  const peers = known.filter((node) => node !== own && node.addresses.length > 0);
  const silent: string[] = [];
  const tryPeer = (peer: ClusterNode) => tryNode(subject, status, own, peer, silent);
  const findings = budget.tryNodes(subject, peers, (some) => runTogether(host.netns, some.map(tryPeer)));
  if (silent.length === 0) return findings;
  const remark = warning(
    `echo requests are not answered by ${abbreviate(silent)}`,
    advise("let them through between nodes: doctor tries little without them, such as no packets of the MTU's size"),
  );
  return [...findings, remark];
}

const TIMEOUT_MS = 1200;

/** Hands out what to send next, and gets what was answered. */
type Trial = Generator<readonly Probe[], readonly Finding[], ReadonlySet<Probe>>;

/** A step of all takes the time of one. */
function runTogether(netns: Netns, trials: readonly Trial[]): Finding[] {
  let steps = trials.map((trial) => trial.next());
  while (!steps.every(({ done }) => done)) {
    const probes = steps.flatMap(({ done, value }) => done ? [] : value);
    const answered = netns.run<Set<Probe>>(() => findAnswered(probes, TIMEOUT_MS));
    steps = steps.map((step, i) => step.done ? step : trials[i]!.next(answered.intersection(new Set(step.value))));
  }
  return steps.flatMap(({ value }) => value as readonly Finding[]);
}

/** A firewall between nodes lets it through. Whether anybody listens does not matter. */
const KUBELET_PORT = 10250;

/** An address of another node. */
interface TriedAddress {
  readonly address: Ip;
  readonly ping: Probe;
  readonly call: Probe;
}

/** One in the other node's range, without the tunnel. */
interface DirectTarget {
  readonly address: Ip;
  /** In this node's range. Absent where nothing can be told. */
  readonly source?: Ip;
  /** An answer to one of them is enough. */
  readonly probes: readonly Probe[];
}

const tryAddress = (address: Ip): TriedAddress => ({
  address,
  ping: pingProbe(address),
  call: tcpProbe(address, KUBELET_PORT),
});

/** @param silent gets what answers, but no echo requests */
function* tryNode(
  subject: Subject,
  { mtu }: ClusterStatus,
  own: ClusterNode | undefined,
  peer: ClusterNode,
  silent: string[],
): Trial {
  const nodes = peer.addresses.map(tryAddress);
  const echoed = yield nodes.map(({ ping }) => ping);
  const unheard = nodes.filter(({ ping }) => !echoed.has(ping));
  const targets = findTargets(subject, own, peer);
  const answered = echoed.union(
    yield [
      ...unheard.map(({ call }) => call),
      ...targets.flatMap((target) => "call" in target ? [target.ping, target.call] : target.probes),
    ],
  );
  if (answered.size === 0) return [silentNode(peer, peer.addresses)];
  const withoutEcho = [...unheard, ...targets.filter((target) => "call" in target)]
    .filter(({ ping, call }) => answered.has(call) && !answered.has(ping));
  if (withoutEcho.length > 0) {
    silent.push(`node "${peer.name}" at ${withoutEcho.map(({ address }) => address).join(" and ")}`);
  }
  const findings: Finding[] = [];
  for (const target of targets) {
    const node = nodes.find(({ address }) => familyOf(address) === familyOf(target.address));
    findings.push(
      ...yield* "call" in target
        ? tryTunnel(subject, own, peer, target, mtu, answered)
        : tryDirect(peer, node, target, mtu, answered),
    );
  }
  if (findings.length > 0) return findings;
  const isTried = targets.every((target) => "call" in target || target.source !== undefined);
  const remark = isTried ? "" : "; packets between pods were not tried: that needs a pod on this node, and a route";
  return [ok(`node "${peer.name}" answers${remark}`)];
}

const silentNode = ({ name }: ClusterNode, addresses: readonly Ip[]): Finding =>
  broken(
    `node "${name}" does not answer at ${addresses.join(" and ")}`,
    advise("look at that node, at its firewall and at the network between"),
  );

function findTargets(
  { host }: Subject,
  own: ClusterNode | undefined,
  peer: ClusterNode,
): (TriedAddress | DirectTarget)[] {
  const tunnel = host.links.find(({ name }) => name === TUNNEL_LINK)?.index;
  const addresses = peer.podCidrs.map((cidr) => tunnel === undefined ? gatewayOf(cidr) : tunnelAddress(cidr));
  const ways = matchAll(host.netns.route, addresses);
  return addresses.map((address, i) => {
    if (tunnel !== undefined && ways[i]?.oif === tunnel) return tryAddress(address);
    const range = own?.podCidrs.find((cidr) => familyOf(cidr) === familyOf(address));
    const source = range && host.addresses.map((each) => ipOf(each.address)).find((ip) => containsIp(range, ip));
    if (source === undefined) return { address, probes: [] };
    const ping = pingProbe(address, { source });
    // The address of the tunnel's link is always there.
    if (tunnel !== undefined) return { address, source, probes: [ping] };
    if (ways[i]?.dst !== peer.podCidrs[i]) return { address, probes: [] };
    return { address, source, probes: [ping, arrivalProbe(source, address, KUBELET_PORT)] };
  });
}

/** Pods of a node have it on the node's side. Without pods, the node says that nobody has it. */
const gatewayOf = (podCidr: Cidr): Ip => nextIp(ipOf(networkOf(podCidr)))!;

function* tryTunnel(
  subject: Subject,
  own: ClusterNode | undefined,
  peer: ClusterNode,
  { address, ping, call }: TriedAddress,
  mtu: number,
  answered: ReadonlySet<Probe>,
): Trial {
  if (!answered.has(ping) && !answered.has(call)) {
    const strict = own && findStrictReturn(subject, own, peer);
    if (strict) return [strict];
    return [broken(
      `node "${peer.name}" answers, but not through the tunnel at ${address}`,
      advise(
        "let the tunnel's UDP port through between nodes, in firewalls and security groups; then look at that node",
      ),
    )];
  }
  if (!answered.has(ping)) return [];
  const large = pingProbe(address, { bytes: mtu });
  if (!(yield [large]).has(large)) {
    return [broken(
      `packets of ${mtu} bytes do not reach node "${peer.name}" through the tunnel`,
      advise("the network between nodes has a smaller MTU than their links: lower that of the links"),
    )];
  }
  return answered.has(call) ? [] : yield* tryChecksums(own, peer, address);
}

/** The kernel drops what comes by a link that answers would not leave by, if that link is strict. */
function findStrictReturn({ host }: Subject, own: ClusterNode, peer: ClusterNode): Finding | undefined {
  const underlay = underlayOf(own, peer);
  if (!underlay || familyOf(underlay.source) === 6) return undefined;
  const { source, destination } = underlay;
  const linkOf = (wanted: number | undefined) => host.links.find(({ index }) => index === wanted);
  const incoming = linkOf(host.addresses.find(({ address }) => ipOf(address) === source)?.index);
  const outgoing = linkOf(matchAll(host.netns.route, [destination])[0]?.oif);
  const strict = incoming && findStrictRpFilter(host.sysctl, incoming);
  if (!strict || !outgoing || incoming === outgoing) return undefined;
  return broken(
    `${strict} is 1 (strict), and the route to node "${peer.name}" at ${destination} leads to "${outgoing.name}": ` +
      `what it sends to ${source} on "${incoming.name}" is dropped`,
    advise(
      `give the node a route by "${incoming.name}", or let packets in`,
      `sysctl -w ${sysctlWord(`net/ipv4/conf/${incoming.name}/rp_filter`)}=2`,
    ),
  );
}

/**
 * Some network cards spoil the checksum of TCP in a tunnel, which the kernel leaves to them; echo requests have theirs
 * from the program. What a card says of its abilities does not tell.
 */
function* tryChecksums(own: ClusterNode | undefined, peer: ClusterNode, target: Ip): Trial {
  const range = own?.podCidrs.find((cidr) => familyOf(cidr) === familyOf(target));
  if (range === undefined) return [];
  const call = synProbe(tunnelAddress(range), target, KUBELET_PORT);
  if (!(yield [call]).has(call)) return [];
  return [broken(
    `TCP reaches node "${peer.name}" through the tunnel only with checksums that no network card has computed: ` +
      "that of this node, or of the other one, spoils them in a tunnel",
    advise(
      "update driver and firmware of the network cards; until then let the kernel compute checksums, " +
        "on each node and after each start",
      `ethtool -K ${TUNNEL_LINK} tx-checksum-ip-generic off`,
    ),
  )];
}

/**
 * The address of the node itself tells about the way; addresses in ranges of pods tell what the way lets through. To the
 * node's own address, those of pods would be masqueraded.
 */
function* tryDirect(
  peer: ClusterNode,
  node: TriedAddress | undefined,
  { address, source, probes }: DirectTarget,
  mtu: number,
  answered: ReadonlySet<Probe>,
): Trial {
  if (node === undefined) return [];
  const isReached = probes.some((probe) => answered.has(probe));
  if (!answered.has(node.ping)) {
    return isReached || answered.has(node.call) ? [] : [silentNode(peer, [node.address])];
  }
  const large = pingProbe(node.address, { bytes: mtu });
  if (!(yield [large]).has(large)) {
    return [broken(
      `packets of ${mtu} bytes do not reach node "${peer.name}" at ${node.address}`,
      advise("the network between nodes has a smaller MTU than their links: lower that of the links"),
    )];
  }
  if (source === undefined || isReached) return [];
  return [broken(
    `node "${peer.name}" answers at ${node.address}, but at ${address} not to ${source}: packets between pods are lost`,
    advise(
      "the network between drops addresses that it does not know, as some clouds do: give --tunnel always to cni serve. " +
        "If only that node is concerned, its address may have another prefix length than this node's: " +
        "then its way back is the tunnel",
    ),
  )];
}
