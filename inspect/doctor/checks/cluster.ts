/** The network between the nodes of a cluster: what its part says, and packets to other nodes. @module */
import { type Cidr, containsIp, familyOf, type Ip, ipOf } from "../../../ffi/address.ts";
import { isPingAnswered, isSynAnswered, type PingOptions, tryTcpConnection } from "../../../ffi/packet/probe.ts";
import { matchAll } from "../../../ffi/route/route.ts";
import { underlayOf } from "../../../cluster/network/plan.ts";
import { tunnelAddress } from "../../../cluster/network/tunnel.ts";
import { TUNNEL_LINK } from "../../../cluster/network/settings.ts";
import type { ClusterNode } from "../../../cluster/node.ts";
import { type ClusterStatus, DEFAULT_STATUS_DIRECTORY, findClusterStatus } from "../../../cluster/status.ts";
import { nodesFilePath, readNodesFile } from "../../../cluster/stored_nodes.ts";
import { sysctlWord } from "../../../ffi/sys/sysctl.ts";
import { abbreviate, advise, broken, type Finding, ok, warning } from "../finding.ts";
import { findStrictRpFilter } from "../strict_rp_filter.ts";
import { describeContainer, type Subject } from "../subject.ts";
import type { TryBudget } from "../try_budget.ts";

const FAILURES = "see docs/kubernetes.md, failures";

/** Absent if the network is not that of a cluster. */
const findStatus = ({ network }: Subject): ClusterStatus | undefined => {
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
  const { apiProblem, heardAtMs, problems, nodes, isSynced, podCidrs = [] } = status;
  const since = heardAtMs === undefined ? "" : ` since ${new Date(heardAtMs).toISOString()}`;
  return [
    ...problems.map((problem) => broken(problem, advise(FAILURES))),
    ...apiProblem === undefined ? [] : [
      warning(
        `the API server was not heard${since}: ${apiProblem}`,
        advise("look at the API server, and at the way there; known nodes are reached meanwhile"),
      ),
    ],
    ...checkFormerRanges(subject, podCidrs),
    ...isSynced && problems.length === 0 ? [ok(`routes lead to ${nodes} other nodes`)] : [],
  ];
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

/** One after the other, as long as the time lasts. */
export function tryOtherNodes(subject: Subject, budget: TryBudget): Finding[] {
  const status = findStatus(subject);
  if (!status) return [];
  const { runtime } = subject;
  const known = readNodesFile(nodesFilePath(runtime.cacheDirectory), runtime.log)?.nodes ?? [];
  const own = known.find(({ name }) => name === status.node);
  const peers = known.filter((node) => node !== own && node.addresses.length > 0);
  return budget.tryEachNode(subject, peers, (peer) => tryNode(subject, status, own, peer));
}

const TIMEOUT_MS = 1200;

function tryNode(subject: Subject, { mtu }: ClusterStatus, own: ClusterNode | undefined, peer: ClusterNode): Finding[] {
  const { netns, links } = subject.host;
  const answers = (target: Ip, options?: PingOptions) =>
    netns.run<boolean>(() => isPingAnswered(target, TIMEOUT_MS, options));
  const tunnel = links.find(({ name }) => name === TUNNEL_LINK)?.index;
  const node = peer.addresses.find((address) => answers(address));
  if (node === undefined) {
    return [broken(
      `node "${peer.name}" does not answer at ${peer.addresses.join(" and ")}`,
      advise("look at that node, at its firewall and at the network between"),
    )];
  }
  const targets = peer.podCidrs.map(tunnelAddress);
  const ways = matchAll(netns.route, targets);
  const findings = targets.flatMap((target, i) => {
    const isTunnelled = tunnel !== undefined && ways[i]?.oif === tunnel;
    return isTunnelled
      ? tryTunnel(subject, own, peer, target, mtu, answers)
      : tryDirect(subject, own, peer, target, mtu, answers);
  });
  return findings.length > 0 ? findings : [ok(`node "${peer.name}" answers`)];
}

type Answers = (target: Ip, options?: PingOptions) => boolean;

/** A firewall between nodes lets it through. Whether anybody listens does not matter. */
const KUBELET_PORT = 10250;

function tryTunnel(
  subject: Subject,
  own: ClusterNode | undefined,
  peer: ClusterNode,
  target: Ip,
  mtu: number,
  answers: Answers,
): Finding[] {
  if (!answers(target)) {
    const strict = own && findStrictReturn(subject, own, peer);
    if (strict) return [strict];
    return [broken(
      `node "${peer.name}" answers, but not through the tunnel at ${target}`,
      advise(
        "let the tunnel's UDP port through between nodes, in firewalls and security groups; then look at that node",
      ),
    )];
  }
  if (answers(target, { bytes: mtu })) return tryChecksums(subject, own, peer, target);
  return [broken(
    `packets of ${mtu} bytes do not reach node "${peer.name}" through the tunnel`,
    advise("the network between nodes has a smaller MTU than their links: lower that of the links"),
  )];
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
function tryChecksums({ host }: Subject, own: ClusterNode | undefined, peer: ClusterNode, target: Ip): Finding[] {
  const range = own?.podCidrs.find((cidr) => familyOf(cidr) === familyOf(target));
  if (range === undefined) return [];
  const source = tunnelAddress(range);
  const isSpoilt = host.netns.run<boolean>(() =>
    tryTcpConnection(target, KUBELET_PORT, TIMEOUT_MS) === "timed out" &&
    isSynAnswered(source, target, KUBELET_PORT, TIMEOUT_MS)
  );
  if (!isSpoilt) return [];
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

/** The address of the node itself tells about the way; addresses in ranges of pods tell what the way lets through. */
function tryDirect(
  { host }: Subject,
  own: ClusterNode | undefined,
  peer: ClusterNode,
  target: Ip,
  mtu: number,
  answers: Answers,
): Finding[] {
  // It is on the tunnel's link, and each node has one or none has.
  const hasTarget = host.links.some(({ name }) => name === TUNNEL_LINK);
  const node = peer.addresses.find((address) => familyOf(address) === familyOf(target));
  if (node === undefined) return [];
  if (!answers(node, { bytes: mtu })) {
    return [broken(
      `packets of ${mtu} bytes do not reach node "${peer.name}" at ${node}`,
      advise("the network between nodes has a smaller MTU than their links: lower that of the links"),
    )];
  }
  const range = own?.podCidrs.find((cidr) => familyOf(cidr) === familyOf(target));
  const source = range && host.addresses.map(({ address }) => ipOf(address)).find((ip) => containsIp(range, ip));
  // To the node's own address it would be masqueraded.
  if (source === undefined || !hasTarget || answers(target, { source })) return [];
  return [broken(
    `node "${peer.name}" answers at ${node}, but at ${target} not to ${source}: packets between pods are lost`,
    advise(
      "the network between drops addresses that it does not know, as some clouds do: give --tunnel always to cni serve. " +
        "If only that node is concerned, its address may have another prefix length than this node's: " +
        "then its way back is the tunnel",
    ),
  )];
}
