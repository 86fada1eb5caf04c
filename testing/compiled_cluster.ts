/** A cluster of which the compiler is told, and what the kernel of a node has by it. @module */
import { expect } from "bun:test";
import { compareIps, type Ip, parseIp } from "../ffi/address.ts";
import {
  type DesiredPolicy,
  mayForbid,
  type PeerSet,
  type PolicedPod,
  type PolicyChain,
  type PolicyChange,
  type PortMatch,
} from "../plugins/lib/policy/desired.ts";
import { type NamespaceObject, parseNamespace } from "../policy/api/namespace.ts";
import { type NetworkPolicyObject, parseNetworkPolicy } from "../policy/api/network_policy.ts";
import { type LabelledPod, parsePod, podKey, type PodObject } from "../policy/api/pod.ts";
import { protocolNumber } from "../policy/api/protocol.ts";
import { PolicyCompiler } from "../policy/compiler.ts";
import { explainFlow, type PolicyVerdict } from "../policy/explain.ts";
import { allowsFlow } from "../policy/flow_verdict.ts";
import { localKey } from "../policy/local_pod.ts";
import { oracleAllows, type OracleCluster, type OracleFlow } from "./policy_oracle.ts";

/** The node whose policies are compiled. */
export const LOCAL_NODE = "here";

/** What the API tells of a cluster. */
export type ClusterChange =
  | { readonly put: "policy"; readonly object: NetworkPolicyObject }
  | { readonly put: "pod"; readonly object: PodObject }
  | { readonly put: "namespace"; readonly object: NamespaceObject }
  /** It is `namespace/name` of a policy, the UID of a pod, the name of a namespace. */
  | { readonly remove: "policy" | "pod" | "namespace"; readonly key: string }
  /** Nothing new: the compiler looks at what has come. */
  | { readonly look: true };

/** The kernel is told after each of them, and all is judged. */
export type ClusterSteps = readonly (readonly ClusterChange[])[];

/** A real one, told of the same. */
export interface EnforcingNode {
  attach(pod: LabelledPod): void;
  detach(pod: LabelledPod): void;
  change(change: PolicyChange): void;
}

/** What is asked of each pair of ends. */
export interface ProbedFlows {
  readonly ports: readonly number[];
  readonly protocols: readonly string[];
  /** Addresses that no pod has. */
  readonly outside: readonly string[];
}

/** Two of them talk, or must not. */
export interface JudgedFlow extends OracleFlow {
  readonly isAllowed: boolean;
}

/** What the kernel has, as far as it was told. */
export class KernelMirror {
  readonly sets = new Map<string, Set<string>>();
  readonly chains = new Map<string, PolicyChain>();
  readonly pods = new Map<Ip, PolicedPod>();

  apply(change: PolicyChange): void {
    for (const [key, set] of change.setsAdded) {
      expect(this.sets.has(key)).toBe(false);
      this.sets.set(key, new Set());
      this.#add(key, set);
    }
    for (const { set, added, removed } of change.elements) {
      expect(change.setsAdded.has(set)).toBe(false);
      for (const element of elementsOf(removed)) expect(this.sets.get(set)!.delete(element)).toBe(true);
      this.#add(set, added);
    }
    for (const chain of change.chainsAdded) {
      expect(this.chains.has(chain.key)).toBe(false);
      this.chains.set(chain.key, chain);
    }
    for (const pod of change.pods) for (const ip of pod.ips) this.pods.set(ip, pod);
    for (const key of change.chainsRemoved) expect(this.chains.delete(key)).toBe(true);
    for (const key of change.setsRemoved) expect(this.sets.delete(key)).toBe(true);
    for (const { rules } of this.chains.values()) {
      for (const { peers = [], ports = [] } of rules) {
        for (const key of [...peers, ...ports.flatMap(setsOfMatch)]) {
          expect(this.sets.has(key)).toBe(true);
        }
      }
    }
    for (const { ingress, egress } of this.pods.values()) {
      for (const key of [ingress, egress]) if (key !== undefined) expect(this.chains.has(key)).toBe(true);
    }
  }

  /** DEL of a pod removes the elements of its addresses. */
  detach(ips: readonly Ip[]): void {
    for (const ip of ips) this.pods.delete(ip);
  }

  allows(source: Ip, destination: Ip, protocol: number, port: number): boolean {
    if (source === destination) return true;
    const target = { ip: destination, protocol, port };
    return this.#passes(this.pods.get(source)?.egress, destination, target) &&
      this.#passes(this.pods.get(destination)?.ingress, source, target);
  }

  #passes(chain: string | undefined, peer: Ip, target: { ip: Ip; protocol: number; port: number }): boolean {
    if (chain === undefined) return true;
    return this.chains.get(chain)!.rules.some(({ peers, ports }) =>
      (!peers || peers.some((key) => this.#has(key, peer))) &&
      (!ports || ports.some((match) => {
        if ("named" in match) return this.sets.get(match.named)!.has(`${target.ip} ${target.protocol} ${target.port}`);
        if (match.protocol !== target.protocol) return false;
        if ("ranges" in match) return hasNumber(this.sets.get(match.ranges)!, target.port);
        const { first, last } = match;
        return first === undefined || target.port >= first && target.port <= last!;
      }))
    );
  }

  #has(key: string, ip: Ip): boolean {
    const elements = this.sets.get(key)!;
    return elements.has(ip) || [...elements].some((element) => {
      const [first, last] = element.split("-") as Ip[];
      return last !== undefined && isBetween(first!, ip, last);
    });
  }

  #add(key: string, set: PeerSet | undefined): void {
    for (const element of elementsOf(set)) {
      expect(this.sets.get(key)!.has(element)).toBe(false);
      this.sets.get(key)!.add(element);
    }
  }
}

function setsOfMatch(match: PortMatch): string[] {
  if ("named" in match) return [match.named];
  return "ranges" in match ? [match.ranges] : [];
}

const hasNumber = (ranges: ReadonlySet<string>, port: number): boolean =>
  [...ranges].some((range) => {
    const [first, last] = range.split("-").map(Number);
    return first! <= port && port <= last!;
  });

const isBetween = (first: Ip, ip: Ip, last: Ip): boolean =>
  first.includes(":") === ip.includes(":") && compareIps(first, ip) <= 0 && compareIps(ip, last) <= 0;

function elementsOf(set: PeerSet | undefined): string[] {
  switch (set?.kind) {
    case undefined:
      return [];
    case "addresses":
      return [...set.ips];
    case "blocks":
      return [...set.intervals].map(([first, last]) => `${first}-${last}`);
    case "ranges":
      return [...set.ranges].map(([first, last]) => `${first}-${last}`);
    case "ports":
      return [...set.elements].map(({ ip, protocol, port }) => `${ip} ${protocol} ${port}`);
  }
}

const mirrorOf = ({ pods, chains, sets }: DesiredPolicy): KernelMirror => {
  const mirror = new KernelMirror();
  const none = { setsRemoved: [], elements: [], chainsRemoved: [] };
  mirror.apply({ ...none, setsAdded: sets, chainsAdded: [...chains.values()], pods: [...pods] });
  return mirror;
};

export interface CompiledClusterOptions {
  readonly node?: EnforcingNode;
  readonly allows?: typeof oracleAllows;
}

const NOTHING: OracleCluster = { namespaces: [], pods: [], policies: [] };

/** A cluster that changes, and the compiler and the kernel that are told of it. */
export class CompiledCluster {
  readonly compiler = new PolicyCompiler();
  readonly mirror = new KernelMirror();
  readonly namespaces = new Map<string, NamespaceObject>();
  readonly pods = new Map<string, PodObject>();
  readonly policies = new Map<string, NetworkPolicyObject>();
  /** What it has been told so far. */
  readonly steps: ClusterChange[][] = [[]];
  readonly #node: EnforcingNode | undefined;
  readonly #allows: typeof oracleAllows;
  #asked = 0;

  constructor(cluster: OracleCluster = NOTHING, { node, allows = oracleAllows }: CompiledClusterOptions = {}) {
    this.#node = node;
    this.#allows = allows;
    for (const object of cluster.namespaces) this.apply({ put: "namespace", object });
    for (const object of cluster.policies) this.apply({ put: "policy", object });
    for (const object of cluster.pods) this.apply({ put: "pod", object });
  }

  apply(change: ClusterChange): void {
    this.steps.at(-1)!.push(change);
    if ("look" in change) return this.compiler.update();
    if ("remove" in change) return this.#remove(change.remove, change.key);
    switch (change.put) {
      case "namespace":
        this.namespaces.set(change.object.metadata.name, change.object);
        return void this.compiler.putNamespace(parseNamespace(change.object));
      case "policy":
        this.policies.set(podKey(change.object.metadata), change.object);
        return void this.compiler.putPolicy(parseNetworkPolicy(change.object));
      case "pod":
        return this.#putPod(change.object);
    }
  }

  follow(steps: ClusterSteps, check: () => void): void {
    for (const changes of steps) {
      for (const change of changes) this.apply(change);
      check();
    }
  }

  /** Compares what the kernel has been told with what it would be told at once, and what both allow with the API. */
  check(probed: ProbedFlows): void {
    const { compiler, mirror } = this;
    const flows = this.flows(probed);
    const formerlyAllowed = flows.filter((flow) => mirror.allows(...kernelFlow(flow)));
    const change = this.tell();
    // Connections are judged after such changes alone.
    if (!change || !mayForbid(change)) {
      expect(formerlyAllowed.filter((flow) => !mirror.allows(...kernelFlow(flow)))).toEqual([]);
    }
    const fresh = mirrorOf(compiler.desired());
    expect([...mirror.chains.keys()].sort()).toEqual([...fresh.chains.keys()].sort());
    expect(sortedSets(mirror)).toEqual(sortedSets(fresh));
    expect(mirror.pods).toEqual(fresh.pods);
    for (const flow of flows) this.#compare(flow);
  }

  /** Tells the kernel what has changed. */
  tell(): PolicyChange | undefined {
    this.steps.push([]);
    const change = this.compiler.takeChange();
    if (!change) return undefined;
    this.mirror.apply(change);
    this.#node?.change(change);
    return change;
  }

  /** Between all ends, with what the API says of it; a pod of another node is judged there. */
  flows({ ports, protocols, outside }: ProbedFlows): JudgedFlow[] {
    const cluster = this.objects();
    const locals = new Set(cluster.pods.filter(isLocal).flatMap(addressesOf));
    const ends = [...cluster.pods.flatMap(addressesOf), ...outside];
    const flows: JudgedFlow[] = [];
    for (const source of ends) {
      for (const destination of ends.filter((end) => end.includes(":") === source.includes(":"))) {
        for (const protocol of protocols) {
          for (const port of ports) {
            const flow: OracleFlow = { source, destination, protocol, port };
            const isAllowed = (!locals.has(source) || this.#allows(cluster, flow, "egress")) &&
              (!locals.has(destination) || this.#allows(cluster, flow, "ingress"));
            flows.push({ ...flow, isAllowed });
          }
        }
      }
    }
    return flows;
  }

  objects(): OracleCluster {
    const { namespaces, pods, policies } = this;
    return {
      namespaces: [...namespaces.values()],
      pods: [...pods.values()],
      policies: [...policies.values()],
    };
  }

  #putPod(object: PodObject): void {
    const pod = parsePod(object);
    this.pods.set(pod.uid, object);
    if (isLocal(object) && pod.ips.length > 0) {
      if (!this.compiler.locals().has(localKey(pod))) this.#node?.attach(pod);
      this.compiler.putLocal({ ...pod });
    }
    this.compiler.putPod(pod);
    // The engine removes the sandbox of one that has ended.
    if (pod.ips.length === 0) this.#detach(pod);
  }

  #detach(pod: LabelledPod): void {
    const local = this.compiler.locals().get(localKey(pod));
    if (!local) return;
    this.compiler.removeLocal(localKey(pod));
    this.mirror.detach(local.ips);
    this.#node?.detach(pod);
  }

  #remove(kind: "policy" | "pod" | "namespace", key: string): void {
    switch (kind) {
      case "policy":
        this.policies.delete(key);
        return this.compiler.removePolicy(key);
      case "namespace":
        this.namespaces.delete(key);
        return this.compiler.removeNamespace(key);
      case "pod": {
        const object = this.pods.get(key);
        if (!object) return;
        const pod = parsePod(object);
        this.pods.delete(key);
        this.compiler.removePod(key);
        this.#detach(pod);
      }
    }
  }

  #compare(flow: JudgedFlow): void {
    const { compiler, mirror } = this;
    const { isAllowed } = flow;
    // Explaining takes longer than all else.
    if (this.#asked++ % 20 === 0) {
      const verdict = this.#explain(flow);
      expect(verdict.egress.isAllowed).toBe(this.#allows(this.objects(), flow, "egress"));
      expect(verdict.ingress.isAllowed).toBe(this.#allows(this.objects(), flow, "ingress"));
    }
    const ask = kernelFlow(flow);
    const [source, destination, protocol, port] = ask;
    const ends = { source, destination, protocol, port };
    const [kernel, judge] = [
      mirror.allows(...ask),
      allowsFlow(compiler, ends, { passes: () => true, isPeer: () => false }),
    ];
    if (kernel === isAllowed && judge === isAllowed) return;
    throw new Error(`${JSON.stringify(flow)}: kernel ${kernel}, judge ${judge}`);
  }

  #explain({ source, destination, protocol, port }: OracleFlow): PolicyVerdict {
    const { compiler } = this;
    const [from, to] = [source, destination].map((text) => {
      const ip = parseIp(text);
      const pod = compiler.peers.ownerOf(ip)?.pod;
      return { text, ips: [ip], ...pod && { pod } };
    });
    const knowledge = {
      policiesSelecting: compiler.policiesSelecting.bind(compiler),
      namespaceLabels: (name: string) => compiler.peers.namespace(name)?.labels,
    };
    return explainFlow(knowledge, from!, to!, { protocol: protocolNumber(protocol)!, port });
  }
}

const kernelFlow = ({ source, destination, protocol, port }: OracleFlow) =>
  [parseIp(source), parseIp(destination), protocolNumber(protocol)!, port] as const;

const isLocal = ({ spec }: PodObject): boolean => spec?.nodeName === LOCAL_NODE;

const addressesOf = (pod: PodObject): string[] => [...parsePod(pod).ips];

const sortedSets = ({ sets }: KernelMirror) =>
  new Map([...sets].sort().map(([key, elements]) => [key, [...elements].sort()]));
