/** Small clusters with pods and policies that often concern each other. @module */
import type { NamespaceObject } from "../policy/api/namespace.ts";
import type { NetworkPolicyObject } from "../policy/api/network_policy.ts";
import { podKey, type PodObject } from "../policy/api/pod.ts";
import { type ClusterChange, LOCAL_NODE, type ProbedFlows } from "./compiled_cluster.ts";
import type { OracleCluster } from "./policy_oracle.ts";

/** What rules of these clusters are about. */
export const RANDOM_FLOWS: ProbedFlows = {
  ports: [80, 81, 90, 443],
  protocols: ["TCP", "UDP", "SCTP"],
  outside: ["192.0.2.1", "10.1.9.9", "2001:db8::1", "fd00:1::99"],
};

const KEYS = ["app", "tier", "constructor"];
const VALUES = ["a", "b", ""];
const NAMESPACES = ["x", "y", "z"];
const PORT_NAMES = ["http", "metrics", "admin"];
/** Most of them touch no other, so that many stay many. */
const LISTED_PORTS = [...RANDOM_FLOWS.ports, ...Array.from({ length: 8 }, (_, i) => 100 + 2 * i), 65_535];
const BLOCKS = [
  ["0.0.0.0/0", "10.1.0.0/24", "10.1.0.0/30", "10.0.0.0/8"],
  ["10.1.0.0/24", "10.1.0.0/30", "10.1.0.2/31", "10.1.0.1/32"],
  ["10.1.0.1/32"],
  ["192.0.2.0/24", "192.0.2.1/32"],
  ["::/0", "fd00:1::/64", "fd00:1::/126", "2001:db8::/32"],
  ["fd00:1::/120", "fd00:1::2/127"],
];

export class RandomPolicies {
  #state: number;
  #count = 0;

  constructor(seed: number) {
    this.#state = seed * 2654435761 >>> 0;
  }

  cluster(): OracleCluster {
    return {
      namespaces: NAMESPACES.map((name) => this.namespace(name)),
      pods: this.several(8, () => this.pod()),
      policies: this.several(4, () => this.policy()),
    };
  }

  namespace(name: string): NamespaceObject {
    return { metadata: { uid: `namespace-${name}`, name, labels: this.#labels() } };
  }

  pod(number = this.#count++): PodObject {
    const isHost = this.below(10) === 0;
    const phase = this.below(10) === 0 ? this.pick(["Succeeded", "Failed"]) : "Running";
    const ips = [`10.1.0.${number % 250 + 1}`, `fd00:1::${(number % 250 + 1).toString(16)}`];
    return {
      metadata: {
        uid: `pod-${number}`,
        namespace: this.pick(NAMESPACES),
        name: `pod-${number}`,
        labels: this.#labels(),
      },
      spec: {
        nodeName: this.pick([LOCAL_NODE, "there"]),
        ...isHost && { hostNetwork: true },
        containers: [{
          ports: this.several(3, () => ({
            ...this.below(4) > 0 && { name: this.pick(PORT_NAMES) },
            containerPort: this.pick(RANDOM_FLOWS.ports),
            ...this.below(2) > 0 && { protocol: this.pick(RANDOM_FLOWS.protocols) },
          })),
        }],
      },
      status: { phase, podIPs: ips.map((ip) => ({ ip })) },
    };
  }

  policy(number = this.#count++): NetworkPolicyObject {
    const policyTypes = this.pick([["Ingress"], ["Egress"], ["Ingress", "Egress"], undefined]);
    const rules = () => this.several(2, () => [this.several(2, () => this.#peer()), this.#ports()]);
    return {
      metadata: { uid: `policy-${number}`, namespace: this.pick(NAMESPACES), name: `policy-${number}` },
      spec: {
        podSelector: this.#selector(),
        ...policyTypes && { policyTypes },
        ...this.below(4) > 0 && { ingress: rules().map(([from, ports]) => ({ from, ports })) as never },
        ...this.below(4) > 0 && { egress: rules().map(([to, ports]) => ({ to, ports })) as never },
      },
    };
  }

  /** Changes that come at once. */
  changes({ namespaces, pods, policies }: OracleCluster): ClusterChange[] {
    switch (this.below(6)) {
      case 0:
        return [{ put: "policy", object: this.policy() }];
      case 1: {
        const policy = policies[this.below(policies.length + 1)];
        return policy ? [{ remove: "policy", key: podKey(policy.metadata) }] : [];
      }
      case 2: {
        const former = pods[this.below(pods.length + 1)];
        return former ? this.#successor(former) : [{ put: "pod", object: this.pod() }];
      }
      case 3: {
        const pod = pods[this.below(pods.length + 1)];
        return pod ? [{ remove: "pod", key: pod.metadata.uid }] : [];
      }
      case 4: {
        const pod = pods[this.below(pods.length + 1)];
        const { labels } = this.pod().metadata;
        if (!pod) return [];
        // One that has ended does not run again.
        const status = this.below(4) === 0 ? { ...pod.status, phase: "Succeeded" } : pod.status!;
        return [{ put: "pod", object: { ...pod, metadata: { ...pod.metadata, labels: labels! }, status } }];
      }
      default: {
        const { name } = namespaces[this.below(namespaces.length)]!.metadata;
        const object = this.namespace(name);
        const put: ClusterChange = { put: "namespace", object };
        return this.below(2) === 0 ? [{ remove: "namespace", key: name }, put] : [put];
      }
    }
  }

  /** Another pod, which gets the former one's addresses, or its name, or both. Either may be told first. */
  #successor(former: PodObject): ClusterChange[] {
    const { namespace, name, uid } = former.metadata;
    const pod = this.pod();
    const isNamesake = this.below(2) === 0;
    const object: PodObject = {
      ...pod,
      metadata: { ...pod.metadata, ...isNamesake && { namespace, name } },
      status: { ...pod.status, ...(!isNamesake || this.below(2) === 0) && { podIPs: former.status!.podIPs! } },
    };
    const changes: ClusterChange[] = [{ remove: "pod", key: uid }, { put: "pod", object }];
    // A name, and an address of this node, is free once the former pod is gone.
    const isFree = isNamesake || [former, object].every(({ spec }) => spec?.nodeName === LOCAL_NODE);
    return isFree || this.below(2) === 0 ? changes : changes.reverse();
  }

  below(limit: number): number {
    // Marsaglia's generator xorshift32: a seed repeats a cluster.
    this.#state ^= this.#state << 13;
    this.#state ^= this.#state >>> 17;
    this.#state ^= this.#state << 5;
    this.#state >>>= 0;
    return this.#state % limit;
  }

  pick<T>(choices: readonly T[]): T {
    return choices[this.below(choices.length)]!;
  }

  several<T>(most: number, make: () => T): T[] {
    return Array.from({ length: this.below(most + 1) }, make);
  }

  #labels(): Record<string, string> {
    return Object.fromEntries(this.several(3, () => [this.pick(KEYS), this.pick(VALUES)]));
  }

  #selector() {
    return {
      ...this.below(2) > 0 &&
        { matchLabels: Object.fromEntries(this.several(1, () => [this.pick(KEYS), this.pick(VALUES)])) },
      ...this.below(3) === 0 && {
        matchExpressions: this.several(2, () => {
          const operator = this.pick(["In", "NotIn", "Exists", "DoesNotExist"]);
          const values = [this.pick(VALUES), ...this.several(1, () => this.pick(VALUES))];
          return { key: this.pick(KEYS), operator, ...operator.endsWith("In") && { values } };
        }),
      },
    };
  }

  #peer() {
    const [cidr, ...rest] = this.pick(BLOCKS);
    switch (this.below(4)) {
      case 0:
        return { podSelector: this.#selector() };
      case 1:
        return { namespaceSelector: this.#selector() };
      case 2:
        return { podSelector: this.#selector(), namespaceSelector: this.#selector() };
      default:
        return { ipBlock: { cidr: cidr!, except: rest.filter(() => this.below(2) > 0) } };
    }
  }

  /** Some rules have more of them than the kernel gets rules for. */
  #ports() {
    if (this.below(2) > 0) return this.several(2, () => this.#port());
    const protocols = [this.pick(RANDOM_FLOWS.protocols), this.pick(RANDOM_FLOWS.protocols)];
    const listed = this.several(12, () => ({ protocol: this.pick(protocols), port: this.pick(LISTED_PORTS) }));
    const named = this.several(3, () => ({ protocol: this.pick(protocols), port: this.pick(PORT_NAMES) }));
    return [...this.several(1, () => this.#port()), ...listed, ...named];
  }

  #port() {
    const protocol = this.below(2) > 0 ? { protocol: this.pick(RANDOM_FLOWS.protocols) } : {};
    switch (this.below(4)) {
      case 0:
        return protocol;
      case 1:
        return { ...protocol, port: this.pick(PORT_NAMES) };
      case 2:
        return { ...protocol, port: this.pick([79, 80, 81]), endPort: this.pick([81, 90, 443]) };
      default:
        return { ...protocol, port: this.pick(RANDOM_FLOWS.ports) };
    }
  }
}
