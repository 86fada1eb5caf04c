/** What the compiler makes of random clusters, against what the API's documentation says of them. */
import { expect, test } from "bun:test";
import { compareIps, type Ip, parseIp } from "../ffi/address.ts";
import type { DesiredPolicy, PeerSet, PolicedPod, PolicyChain, PolicyChange } from "../plugins/lib/policy/desired.ts";
import { oracleAllows, type OracleFlow } from "../testing/policy_oracle.ts";
import {
  LOCAL_NODE,
  OUTSIDE,
  PROBED_PORTS,
  PROBED_PROTOCOLS,
  type RandomCluster,
  RandomPolicies,
} from "../testing/random_policies.ts";
import { parseNamespace } from "./api/namespace.ts";
import { parseNetworkPolicy } from "./api/network_policy.ts";
import { parsePod, podKey, type PodObject } from "./api/pod.ts";
import { protocolNumber } from "./api/protocol.ts";
import { PolicyCompiler } from "./compiler.ts";
import { explainFlow, type PolicyVerdict } from "./explain.ts";
import { localKey } from "./local_pod.ts";

/** `CNI_RANDOM_CLUSTERS=10000` is for a release. */
const COUNT = Number(process.env["CNI_RANDOM_CLUSTERS"] ?? 150);
const FIRST_SEED = Number(process.env["CNI_RANDOM_SEED"] ?? 1);

/** What the kernel has, as far as it was told. */
class Mirror {
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
        for (const key of [...peers, ...ports.flatMap((port) => "named" in port ? [port.named] : [])]) {
          expect(this.sets.has(key)).toBe(true);
        }
      }
    }
    for (const { ingress, egress } of this.pods.values()) {
      for (const key of [ingress, egress]) if (key !== undefined) expect(this.chains.has(key)).toBe(true);
    }
  }

  /** As DEL does. */
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
        const { protocol, first, last } = match;
        return protocol === target.protocol && (first === undefined || target.port >= first && target.port <= last!);
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
    case "ports":
      return [...set.elements].map(({ ip, protocol, port }) => `${ip} ${protocol} ${port}`);
  }
}

const mirrorOf = ({ pods, chains, sets }: DesiredPolicy): Mirror => {
  const mirror = new Mirror();
  const none = { setsRemoved: [], elements: [], chainsRemoved: [] };
  mirror.apply({ ...none, setsAdded: sets, chainsAdded: [...chains.values()], pods: [...pods] });
  return mirror;
};

/** A cluster of which a compiler is told, and the kernel by it. */
class Scene {
  readonly compiler = new PolicyCompiler();
  readonly mirror = new Mirror();
  #probes = 0;

  constructor(readonly cluster: RandomCluster) {
    const steps = [
      () => cluster.namespaces.forEach((each) => this.compiler.putNamespace(parseNamespace(each))),
      () => cluster.policies.forEach((each) => this.compiler.putPolicy(parseNetworkPolicy(each))),
      () => cluster.pods.forEach((each) => this.putPod(each)),
    ];
    for (const step of steps) step();
  }

  putPod(object: PodObject): void {
    const pod = parsePod(object);
    const local = { ...pod, ips: pod.ips };
    if (object.spec?.nodeName === LOCAL_NODE && pod.ips.length > 0) this.compiler.putLocal(local);
    this.compiler.putPod(pod);
  }

  removePod(object: PodObject): void {
    const pod = parsePod(object);
    this.compiler.removePod(pod.uid);
    if (!this.compiler.locals().has(localKey(pod))) return;
    this.compiler.removeLocal(localKey(pod));
    this.mirror.detach(pod.ips);
  }

  tell(): void {
    const change = this.compiler.takeChange();
    if (change) this.mirror.apply(change);
  }

  check(): void {
    this.tell();
    const { compiler, mirror, cluster } = this;
    const fresh = mirrorOf(compiler.desired());
    expect([...mirror.chains.keys()].sort()).toEqual([...fresh.chains.keys()].sort());
    expect(sortedSets(mirror)).toEqual(sortedSets(fresh));
    expect(mirror.pods).toEqual(fresh.pods);
    const locals = new Set(cluster.pods.filter(({ spec }) => spec?.nodeName === LOCAL_NODE).flatMap(addressesOf));
    const ends = [...cluster.pods.flatMap(addressesOf), ...OUTSIDE];
    for (const source of ends) {
      for (const destination of ends.filter((end) => end.includes(":") === source.includes(":"))) {
        for (const protocol of PROBED_PROTOCOLS) {
          for (const port of PROBED_PORTS) {
            const flow: OracleFlow = { source, destination, protocol, port };
            const wanted = (!locals.has(source) || oracleAllows(cluster, flow, "egress")) &&
              (!locals.has(destination) || oracleAllows(cluster, flow, "ingress"));
            // Explaining takes longer than all else.
            if (this.#probes++ % 20 === 0) {
              const verdict = this.#explain(flow);
              expect(verdict.egress.isAllowed).toBe(oracleAllows(cluster, flow, "egress"));
              expect(verdict.ingress.isAllowed).toBe(oracleAllows(cluster, flow, "ingress"));
            }
            const ask = [parseIp(source), parseIp(destination), protocolNumber(protocol)!, port] as const;
            if (mirror.allows(...ask) === wanted && compiler.allows(...ask) === wanted) continue;
            throw new Error(
              `${JSON.stringify(flow)} should be ${wanted}: kernel ${mirror.allows(...ask)}, judge ${
                compiler.allows(...ask)
              }\n${JSON.stringify(cluster, undefined, 1)}`,
            );
          }
        }
      }
    }
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

const addressesOf = (pod: PodObject): string[] => [...parsePod(pod).ips];

const sortedSets = ({ sets }: Mirror) =>
  new Map([...sets].sort().map(([key, elements]) => [key, [...elements].sort()]));

function mutate({ cluster, compiler }: Scene, scene: Scene, random: RandomPolicies): void {
  const { pods, policies, namespaces } = cluster;
  switch (random.below(6)) {
    case 0: {
      const policy = random.policy();
      policies.push(policy);
      return compiler.putPolicy(parseNetworkPolicy(policy));
    }
    case 1: {
      const [policy] = policies.splice(random.below(policies.length + 1), 1);
      return policy && compiler.removePolicy(podKey(policy.metadata));
    }
    case 2: {
      const pod = random.pod();
      pods.push(pod);
      return scene.putPod(pod);
    }
    case 3: {
      const [pod] = pods.splice(random.below(pods.length + 1), 1);
      return pod && scene.removePod(pod);
    }
    case 4: {
      const index = random.below(pods.length + 1);
      const pod = pods[index];
      if (!pod) return;
      const { metadata: { labels } } = random.pod();
      const changed = { ...pod, metadata: { ...pod.metadata, labels: labels! } };
      pods[index] = changed;
      return compiler.putPod(parsePod(changed));
    }
    default: {
      const index = random.below(namespaces.length);
      const { name } = namespaces[index]!.metadata;
      if (random.below(2) === 0) compiler.removeNamespace(name);
      const namespace = random.namespace(name);
      namespaces[index] = namespace;
      compiler.putNamespace(parseNamespace(namespace));
    }
  }
}

test(`${COUNT} random clusters are enforced as the API says, also after changes`, () => {
  for (let seed = FIRST_SEED; seed < FIRST_SEED + COUNT; seed++) {
    const random = new RandomPolicies(seed);
    const scene = new Scene(random.cluster());
    try {
      scene.check();
      for (let step = 0; step < 4; step++) {
        for (let change = 0; change <= random.below(3); change++) {
          mutate(scene, scene, random);
          if (random.below(2) === 0) scene.compiler.update();
        }
        scene.check();
      }
    } catch (error) {
      throw new Error(`CNI_RANDOM_SEED=${seed}: ${(error as Error).stack}`);
    }
  }
}, 600_000);
