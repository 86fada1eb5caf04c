/** Whether policy lets two ends talk, and which policy, rule and selector decides. @module */
import { familyOf, type Ip } from "../ffi/address.ts";
import type { PolicyDirection } from "../plugins/lib/policy/desired.ts";
import type { NetworkPolicy, NetworkPolicyRule, Peer, RulePort } from "./api/network_policy.ts";
import { type LabelledPod, podKey } from "./api/pod.ts";
import { protocolName } from "./api/protocol.ts";
import { blocksOf } from "./blocks.ts";
import { selects } from "./select/label_selector.ts";
import type { Labels } from "./select/labels.ts";

/** Each end is `namespace/name` of a pod, or an address. */
export interface PolicyQuestion {
  readonly from: string;
  readonly to: string;
  readonly protocol: number;
  readonly port: number;
}

export interface PolicyVerdict {
  readonly isAllowed: boolean;
  readonly egress: DirectionVerdict;
  readonly ingress: DirectionVerdict;
}

export interface DirectionVerdict {
  readonly isAllowed: boolean;
  /** `namespace/name` of the policies that isolate the pod. */
  readonly isolatedBy: readonly string[];
  readonly reason: string;
}

/** A pod with addresses of its own, or what policy does not select. */
export interface End {
  readonly text: string;
  readonly pod?: LabelledPod;
  /** Empty for a pod on the network of a node. */
  readonly ips: readonly Ip[];
  /** The node whose network it is on. */
  readonly node?: string;
}

export interface PolicyKnowledge {
  policiesSelecting(namespace: string, labels: Labels): readonly NetworkPolicy[];
  /** `undefined` for a namespace that is not known. */
  namespaceLabels(name: string): Labels | undefined;
}

type Target = Pick<PolicyQuestion, "protocol" | "port">;

/** A block is of one family, so the families that both ends have may differ. */
export function explainFlow(knowledge: PolicyKnowledge, from: End, to: End, target: Target): PolicyVerdict {
  const families = ([4, 6] as const).filter((family) =>
    [from, to].every((end) => ofFamily(end, family).ips.length > 0)
  );
  if (families.length < 2) return explainEnds(knowledge, from, to, target);
  const verdicts = families.map((family) =>
    explainEnds(knowledge, ofFamily(from, family), ofFamily(to, family), target)
  );
  const egress = mergeFamilies(families, verdicts.map((verdict) => verdict.egress));
  const ingress = mergeFamilies(families, verdicts.map((verdict) => verdict.ingress));
  return { isAllowed: egress.isAllowed && ingress.isAllowed, egress, ingress };
}

function ofFamily({ pod, ips, ...end }: End, family: 4 | 6): End {
  const own = ips.filter((ip) => familyOf(ip) === family);
  return { ...end, ips: own, ...pod && { pod: { ...pod, ips: own } } };
}

function mergeFamilies(families: readonly (4 | 6)[], verdicts: readonly DirectionVerdict[]): DirectionVerdict {
  const [first] = verdicts as [DirectionVerdict];
  if (verdicts.every(({ reason }) => reason === first.reason)) return first;
  const reasons = verdicts.map(({ isAllowed, reason }, i) =>
    `IPv${families[i]} ${isAllowed ? "allowed" : "denied"}, ${reason}`
  );
  return { ...first, isAllowed: verdicts.every(({ isAllowed }) => isAllowed), reason: reasons.join("; ") };
}

function explainEnds(
  knowledge: PolicyKnowledge,
  from: End,
  to: End,
  { protocol, port }: Target,
): PolicyVerdict {
  const flow = { destination: to, protocol, port };
  const egress = explainDirection(knowledge, "egress", from, to, flow);
  const ingress = explainDirection(knowledge, "ingress", to, from, flow);
  return { isAllowed: egress.isAllowed && ingress.isAllowed, egress, ingress };
}

interface Flow {
  readonly destination: End;
  readonly protocol: number;
  readonly port: number;
}

function explainDirection(
  knowledge: PolicyKnowledge,
  direction: PolicyDirection,
  self: End,
  other: End,
  flow: Flow,
): DirectionVerdict {
  const open = (reason: string) => ({ isAllowed: true, isolatedBy: [], reason });
  if (!self.pod) {
    return open(
      `${self.text} is ${self.node === undefined ? "no pod" : "on a node's network"}, so no policy selects it`,
    );
  }
  if (self.pod.uid === other.pod?.uid) return open("a pod always reaches itself");
  if (other.node !== undefined && other.node === self.pod.node) {
    return open("a pod and its own node always reach each other");
  }
  const isolating = knowledge.policiesSelecting(self.pod.namespace, self.pod.labels)
    .filter((policy) => policy[direction]);
  if (isolating.length === 0) return open(`no policy isolates ${self.text}`);
  const isolatedBy = isolating.map(podKey).sort();
  for (const policy of isolating) {
    for (const [i, rule] of policy[direction]!.entries()) {
      const match = explainRule(knowledge, policy, rule, other, flow);
      if (match === undefined) continue;
      const reason = `policy ${podKey(policy)} allows it: ${direction} rule ${i + 1}, ${match}`;
      return { isAllowed: true, isolatedBy, reason };
    }
  }
  return { isAllowed: false, isolatedBy, reason: `no ${direction} rule of ${isolatedBy.join(", ")} allows it` };
}

/** Returns what of the rule matches; `undefined` if nothing does. */
function explainRule(
  knowledge: PolicyKnowledge,
  { namespace }: NetworkPolicy,
  { peers, ports }: NetworkPolicyRule,
  other: End,
  flow: Flow,
): string | undefined {
  const peer = peers?.find((each) => isPeer(knowledge, namespace, each, other));
  const port = ports?.find((each) => isPort(each, flow));
  if (peers && !peer || ports && !port) return undefined;
  return `${peer ? peerText(namespace, peer) : "all peers"}, ${port ? portText(port) : "all ports"}`;
}

function isPeer(knowledge: PolicyKnowledge, namespace: string, peer: Peer, { pod, ips }: End): boolean {
  if ("cidr" in peer) return ips.some(blocksOf([peer]).contains);
  if (!pod || !selects(peer.pods, pod.labels)) return false;
  if (!peer.namespaces) return pod.namespace === namespace;
  const labels = knowledge.namespaceLabels(pod.namespace);
  return labels !== undefined && selects(peer.namespaces, labels);
}

function isPort(match: RulePort, { destination: { pod }, protocol, port }: Flow): boolean {
  if (match.protocol !== protocol) return false;
  if ("name" in match) {
    const ports = pod?.ports ?? [];
    return ports.some((each) => each.name === match.name && each.protocol === protocol && each.port === port);
  }
  return match.first === undefined || match.first <= port && port <= match.last!;
}

function peerText(namespace: string, peer: Peer): string {
  if ("cidr" in peer) {
    return `block ${peer.cidr}${peer.except.length > 0 ? ` except ${peer.except.join(", ")}` : ""}`;
  }
  const pods = peer.pods.text === "" ? "all pods" : `pods with ${peer.pods.text}`;
  if (!peer.namespaces) return `${pods} in namespace ${namespace}`;
  return `${pods} in ${peer.namespaces.text === "" ? "all namespaces" : `namespaces with ${peer.namespaces.text}`}`;
}

function portText(match: RulePort): string {
  const protocol = protocolName(match.protocol).toLowerCase();
  if ("name" in match) return `port ${match.name}/${protocol}`;
  if (match.first === undefined) return `all ports of ${protocol}`;
  return match.first === match.last
    ? `port ${match.first}/${protocol}`
    : `ports ${match.first}-${match.last}/${protocol}`;
}
