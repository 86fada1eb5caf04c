/**
 * Whether network policy lets two ends talk, from the words of the API's documentation alone, one after the other.
 *
 * It takes objects as the API has them, and shares no line with the compiler.
 *
 * @module
 */
import type { NamespaceObject } from "../policy/api/namespace.ts";
import type { NetworkPolicyObject } from "../policy/api/network_policy.ts";
import type { PodObject } from "../policy/api/pod.ts";

export interface OracleCluster {
  readonly namespaces: readonly NamespaceObject[];
  readonly pods: readonly PodObject[];
  readonly policies: readonly NetworkPolicyObject[];
}

export interface OracleFlow {
  readonly source: string;
  readonly destination: string;
  readonly protocol: string;
  readonly port: number;
}

type Selector = NonNullable<NonNullable<NetworkPolicyObject["spec"]>["podSelector"]>;
type Spec = NonNullable<NetworkPolicyObject["spec"]>;
type Port = NonNullable<NonNullable<Spec["ingress"]>[number]["ports"]>[number];
type OraclePeer = NonNullable<NonNullable<Spec["ingress"]>[number]["from"]>[number];

/** By default, a pod is non-isolated. It is isolated for a direction if any policy selects it and has that type. */
export function oracleAllows(
  cluster: OracleCluster,
  flow: OracleFlow,
  direction: "ingress" | "egress",
): boolean {
  const [self, other] = direction === "ingress" ? [flow.destination, flow.source] : [flow.source, flow.destination];
  const pod = podAt(cluster, self);
  // A pod cannot block access to itself.
  if (!pod || self === other) return true;
  const isolating = cluster.policies.filter(({ metadata, spec = {} }) =>
    metadata.namespace === pod.metadata.namespace && matches(spec.podSelector ?? {}, pod.metadata.labels) &&
    typesOf(spec).includes(direction)
  );
  if (isolating.length === 0) return true;
  // They are additive: what any of them allows is allowed.
  return isolating.some(({ metadata, spec = {} }) => {
    const rules = direction === "ingress"
      ? (spec.ingress ?? []).map(({ from, ports }) => ({ peers: from, ports }))
      : (spec.egress ?? []).map(({ to, ports }) => ({ peers: to, ports }));
    return rules.some(({ peers, ports }) =>
      (!peers?.length || peers.some((peer) => isPeer(cluster, metadata.namespace, peer, other))) &&
      (!ports?.length || ports.some((port) => isPort(cluster, port, flow)))
    );
  });
}

function typesOf({ policyTypes, egress }: Spec): string[] {
  if (policyTypes) return policyTypes.map((type) => type.toLowerCase());
  return egress?.length ? ["ingress", "egress"] : ["ingress"];
}

function isPeer(cluster: OracleCluster, namespace: string, peer: OraclePeer, address: string): boolean {
  if (peer.ipBlock) {
    const { cidr, except = [] } = peer.ipBlock;
    return inBlock(cidr, address) && !except.some((each) => inBlock(each, address));
  }
  const pod = podAt(cluster, address);
  if (!pod || !matches(peer.podSelector ?? {}, pod.metadata.labels)) return false;
  if (!peer.namespaceSelector) return pod.metadata.namespace === namespace;
  const found = cluster.namespaces.find(({ metadata }) => metadata.name === pod.metadata.namespace);
  return found !== undefined && matches(peer.namespaceSelector, found.metadata.labels);
}

function isPort(cluster: OracleCluster, { protocol = "TCP", port, endPort }: Port, flow: OracleFlow): boolean {
  if (protocol !== flow.protocol) return false;
  if (port === undefined) return true;
  if (typeof port === "number") return flow.port >= port && flow.port <= (endPort ?? port);
  const pod = podAt(cluster, flow.destination);
  const ports = (pod?.spec?.containers ?? []).flatMap((container) => container.ports ?? []);
  return ports.some((each) =>
    each.name === port && (each.protocol ?? "TCP") === protocol && each.containerPort === flow.port
  );
}

/** A pod on the node's network, and one that has ended, has no address of its own. */
function podAt({ pods }: OracleCluster, address: string): PodObject | undefined {
  return pods.find(({ spec, status }) =>
    !spec?.hostNetwork && status?.phase !== "Succeeded" && status?.phase !== "Failed" &&
    status?.podIPs?.some(({ ip }) => ip === address)
  );
}

function matches({ matchLabels = {}, matchExpressions = [] }: Selector, labels: Readonly<Record<string, string>> = {}) {
  const valueOf = (key: string) => Object.hasOwn(labels, key) ? labels[key] : undefined;
  return Object.entries(matchLabels).every(([key, value]) => valueOf(key) === value) &&
    matchExpressions.every(({ key, operator, values = [] }) => {
      const value = valueOf(key);
      if (operator === "Exists") return value !== undefined;
      if (operator === "DoesNotExist") return value === undefined;
      if (operator === "In") return value !== undefined && values.includes(value);
      return value === undefined || !values.includes(value);
    });
}

function inBlock(cidr: string, address: string): boolean {
  const [network, length] = cidr.split("/") as [string, string];
  const [a, b] = [bitsOf(network), bitsOf(address)];
  return a.length === b.length && a.slice(0, Number(length)) === b.slice(0, Number(length));
}

function bitsOf(address: string): string {
  if (!address.includes(":")) {
    return address.split(".").map((byte) => Number(byte).toString(2).padStart(8, "0")).join("");
  }
  const [head, tail] = address.split("::").map((part) => part.split(":").filter((group) => group !== ""));
  const missing = 8 - head!.length - (tail?.length ?? 0);
  const groups = tail ? [...head!, ...Array<string>(missing).fill("0"), ...tail] : head!;
  return groups.map((group) => parseInt(group, 16).toString(2).padStart(16, "0")).join("");
}
