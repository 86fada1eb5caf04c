/**
 * From what the API has to what the kernel of this node is to enforce, change by change.
 *
 * Only policies that select a pod of this node count, and only the peers that their rules name.
 *
 * @module
 */
import type { Ip } from "../ffi/address.ts";
import {
  type DesiredPolicy,
  isEmptyChange,
  isSamePoliced,
  type PeerSet,
  type PolicedPod,
  type PolicyChain,
  type PolicyChange,
  type PolicyDirection,
  type PortElement,
} from "../plugins/lib/policy/desired.ts";
import { CLOSED_CHAIN } from "../plugins/lib/ruleset/policy_tables.ts";
import type { PolicyNamespace } from "./api/namespace.ts";
import type { NetworkPolicy } from "./api/network_policy.ts";
import { isSamePod, type LabelledPod, type NamedPort, podKey, portsNamed } from "./api/pod.ts";
import { localKey, type LocalPod, placeholderOf } from "./local_pod.ts";
import { type KnownPod, type PeerSelector, type PodGroup, PodPeers } from "./pod_peers.ts";
import { type CompiledRule, compileRules, type SetSource } from "./rule_set.ts";
import { SelectorIndex } from "./select/selector_index.ts";
import { selects } from "./select/label_selector.ts";
import type { Labels } from "./select/labels.ts";
import { ElementChanges } from "./set_elements.ts";

interface KnownPolicy {
  readonly policy: NetworkPolicy;
  readonly selector: NetworkPolicy["selector"];
  readonly rules: Partial<Record<PolicyDirection, readonly CompiledRule[]>>;
}

interface UsedChain {
  readonly chain: PolicyChain;
  readonly sets: readonly UsedSet[];
  /** It has the keys of local pods. */
  readonly pods: Set<string>;
}

/** A rule names it by its key. */
export interface SelectedSet {
  readonly source: SetSource;
  /** Absent where elements are not those of a selector. */
  readonly peers?: PeerSelector;
}

interface UsedSet extends SelectedSet {
  readonly key: string;
  chains: number;
}

const DIRECTIONS = ["ingress", "egress"] as const;

export class PolicyCompiler {
  readonly #peers = new PodPeers((selector, isAdded, ip, ports) => this.#notePeer(selector, isAdded, ip, ports));
  readonly #policies = new Map<string, KnownPolicy>();
  /** There is one for each namespace with policies. */
  readonly #policyIndex = new Map<string, SelectorIndex<KnownPolicy>>();
  readonly #locals = new Map<string, LocalPod>();
  readonly #localsByIp = new Map<Ip, string>();
  /** UIDs of pods that the API has no more, and whose sandbox is still there. */
  readonly #gone = new Set<string>();
  readonly #isListed: (namespaces: ReadonlySet<string>) => boolean;
  /** What the kernel has of each, or will have with the next change. */
  readonly #policed = new Map<string, PolicedPod>();
  /** What pods are to have once the peers that it names are known. */
  readonly #held = new Map<string, PolicedPod>();
  readonly #chains = new Map<string, UsedChain>();
  readonly #sets = new Map<string, UsedSet>();
  readonly #setsOfSelector = new Map<PeerSelector, Set<UsedSet>>();
  readonly #elements = new ElementChanges();
  /** Keys of local pods to look at. */
  readonly #dirtyPods = new Set<string>();
  /** Keys of local pods of which the kernel has to be told. */
  readonly #untoldPods = new Set<string>();
  /** Keys of chains that no pod has. */
  readonly #idleChains = new Set<string>();
  readonly #chainsAdded = new Set<string>();
  readonly #setsAdded = new Set<string>();

  /** @param isListed whether the peers of all these are known: until then, a pod keeps the policies that it has */
  constructor(isListed: (namespaces: ReadonlySet<string>) => boolean = () => true) {
    this.#isListed = isListed;
  }

  get peers(): PodPeers {
    return this.#peers;
  }

  policies(): Iterable<NetworkPolicy> {
    return this.#policies.values().map(({ policy }) => policy);
  }

  get policyCount(): number {
    return this.#policies.size;
  }

  get setCount(): number {
    return this.#sets.size;
  }

  /** How many addresses, blocks and ports the sets have. */
  get elementCount(): number {
    return this.#elements.total;
  }

  /** How many pods of this node a policy isolates. */
  get isolatedCount(): number {
    return this.#policed.values().filter(({ ingress, egress }) => (ingress ?? egress) !== undefined).toArray().length;
  }

  /** Namespaces that have a policy. */
  policedNamespaces(): string[] {
    return [...this.#policyIndex.keys()];
  }

  policiesSelecting(namespace: string, labels: Labels): NetworkPolicy[] {
    return [...this.#policyIndex.get(namespace)?.selecting(labels) ?? []].map(({ policy }) => policy);
  }

  /** @returns whether anything has changed */
  putPolicy(policy: NetworkPolicy): boolean {
    const key = podKey(policy);
    const known = this.#policies.get(key);
    if (known && known.policy.uid === policy.uid && known.policy.spec === policy.spec) return false;
    if (known) this.removePolicy(key);
    const added: KnownPolicy = { policy, selector: policy.selector, rules: {} };
    this.#policies.set(key, added);
    const index = this.#policyIndex.get(policy.namespace) ?? new SelectorIndex();
    this.#policyIndex.set(policy.namespace, index);
    index.add(added);
    this.#markSelected(policy);
    return true;
  }

  removePolicy(key: string): void {
    const known = this.#policies.get(key);
    if (!known) return;
    const { policy } = known;
    this.#policies.delete(key);
    const index = this.#policyIndex.get(policy.namespace)!;
    index.delete(known);
    if (index.isEmpty) this.#policyIndex.delete(policy.namespace);
    this.#markSelected(policy);
  }

  /** @returns whether anything has changed */
  putNamespace(namespace: PolicyNamespace): boolean {
    return this.#peers.putNamespace(namespace);
  }

  removeNamespace(name: string): void {
    this.#peers.removeNamespace(name);
  }

  /** @returns whether anything has changed */
  putPod(pod: LabelledPod): boolean {
    this.#gone.delete(pod.uid);
    const known = this.#peers.find(pod.uid);
    if (known && isSamePod(known.pod, pod)) return false;
    const key = this.#localKeyOf(pod);
    this.#setPod(pod, key);
    return true;
  }

  /** One that is still attached counts until its sandbox is gone. */
  removePod(uid: string): void {
    const pod = this.#peers.find(uid)?.pod;
    if (!pod) return;
    const key = this.#localKeyOf(pod);
    // Another pod of its name may have that sandbox.
    if (key === undefined || this.#findPod(this.#locals.get(key)!)?.pod !== pod) this.#peers.removePod(uid);
    else this.#gone.add(uid);
  }

  /** What a plugin has attached. @param isNew whether the kernel has it closed, whatever it had before */
  putLocal(local: LocalPod, isNew = false): void {
    const key = localKey(local);
    const known = this.#locals.get(key);
    if (isNew) this.#untoldPods.add(key);
    if (known && known.ips.join() === local.ips.join()) return;
    if (known) this.#forgetIps(key, known);
    this.#noteLocalPorts(key, false);
    this.#locals.set(key, local);
    for (const ip of local.ips) this.#localsByIp.set(ip, key);
    this.#noteLocalPorts(key, true);
    this.#dirtyPods.add(key);
    const pod = this.#findPod(local)?.pod;
    if (pod) this.#setPod(pod, key);
    else this.#peers.putPod(placeholderOf(key), local.ips, true);
  }

  removeLocal(key: string): void {
    const local = this.#locals.get(key);
    if (!local) return;
    const pod = this.#findPod(local)?.pod;
    this.#noteLocalPorts(key, false);
    this.#forgetIps(key, local);
    this.#locals.delete(key);
    this.#dirtyPods.add(key);
    this.#peers.removePod(placeholderOf(key).uid);
    if (pod) this.#detach(pod);
  }

  locals(): ReadonlyMap<string, LocalPod> {
    return this.#locals;
  }

  /** Whether its policies are known. Otherwise it is closed. */
  isKnown(local: LocalPod): boolean {
    return this.#findPod(local) !== undefined || !this.#policyIndex.has(local.namespace);
  }

  /** Keys of local pods whose new policies wait for their peers. */
  get held(): ReadonlyMap<string, PolicedPod> {
    return this.#held;
  }

  /** Looks at what has changed, so that {@linkcode selectedNamespaces} is up to date. */
  update(): void {
    for (const key of this.#dirtyPods.union(new Set(this.#held.keys()))) this.#updateLocal(key);
    this.#dirtyPods.clear();
  }

  /** Namespaces with pods that rules in use may select. */
  selectedNamespaces(): Set<string> {
    return this.#peers.selectedNamespaces();
  }

  /** @returns what the kernel has to do since the last time; `undefined` for nothing */
  takeChange(): PolicyChange | undefined {
    this.update();
    const chainsRemoved: string[] = [];
    const setsRemoved: string[] = [];
    for (const key of this.#idleChains) this.#removeChain(key, chainsRemoved, setsRemoved);
    const change: PolicyChange = {
      setsAdded: new Map([...this.#setsAdded].map((key) => [key, this.#peerSetOf(this.#sets.get(key)!)])),
      setsRemoved,
      elements: this.#elements.take(),
      chainsAdded: [...this.#chainsAdded].map((key) => this.#chains.get(key)!.chain),
      chainsRemoved,
      pods: [...this.#untoldPods].flatMap((key) => this.#policed.get(key) ?? []),
    };
    for (const [key, set] of change.setsAdded) this.#elements.begin(key, set);
    for (const keys of [this.#untoldPods, this.#idleChains, this.#chainsAdded, this.#setsAdded]) keys.clear();
    return isEmptyChange(change) ? undefined : change;
  }

  /** What the kernel has of the pod with this address, or will have with the next change. */
  policedAt(ip: Ip): PolicedPod | undefined {
    return this.#policed.get(this.#localsByIp.get(ip) ?? "");
  }

  /** All of it, whatever the kernel was told before. */
  desired(): DesiredPolicy {
    this.takeChange();
    return {
      pods: [...this.#policed.values()],
      chains: new Map(this.#chains.values().map(({ chain }) => [chain.key, chain])),
      sets: new Map(this.#sets.values().map((set) => [set.key, this.#peerSetOf(set)])),
    };
  }

  /** @returns of an address of a local pod, what isolates it in that direction; `undefined` for nothing */
  chainOf(direction: PolicyDirection, ip: Ip): PolicyChain | undefined {
    const key = this.#localsByIp.get(ip);
    const policed = key === undefined ? undefined : this.#policed.get(key);
    if (policed?.isClosed) return { key: CLOSED_CHAIN, direction, rules: [] };
    const chain = policed?.[direction];
    return chain === undefined ? undefined : this.#chains.get(chain)!.chain;
  }

  isLocal(ip: Ip): boolean {
    return this.#localsByIp.has(ip);
  }

  /** @param key a chain in use names it */
  setOf(key: string): SelectedSet {
    return this.#sets.get(key)!;
  }

  /** @param key of the local pod that it is */
  #setPod(pod: LabelledPod, key: string | undefined): void {
    if (key === undefined) return this.#peers.putPod(pod, pod.ips, false);
    const local = this.#locals.get(key)!;
    this.#noteLocalPorts(key, false);
    this.#peers.removePod(placeholderOf(key).uid);
    const former = this.#findPod(local)?.pod;
    if (former && former.uid !== pod.uid) this.#detach(former);
    this.#peers.putPod(pod, local.ips, true);
    this.#noteLocalPorts(key, true);
    this.#dirtyPods.add(key);
  }

  /** A pod that has no sandbox any more. */
  #detach(pod: LabelledPod): void {
    if (this.#gone.delete(pod.uid)) this.#peers.removePod(pod.uid);
    else this.#peers.putPod(pod, pod.ips, false);
  }

  #findPod(local: LocalPod): KnownPod | undefined {
    const { uid } = local;
    const found = uid === undefined ? undefined : this.#peers.find(uid);
    if (found) return found;
    const named = this.#peers.findNamed(podKey(local));
    return uid === undefined || named?.pod.staticUid === uid ? named : undefined;
  }

  /** Anybody may write a static pod's UID into a pod of another name. */
  #localKeyOf(pod: LabelledPod): string | undefined {
    const { uid, staticUid } = pod;
    const name = podKey(pod);
    return [uid, staticUid, name].find((key) => {
      const local = key === undefined ? undefined : this.#locals.get(key);
      return local !== undefined && podKey(local) === name;
    });
  }

  #forgetIps(key: string, { ips }: LocalPod): void {
    for (const ip of ips) if (this.#localsByIp.get(ip) === key) this.#localsByIp.delete(ip);
  }

  #markSelected({ namespace, selector }: NetworkPolicy): void {
    for (const [key, local] of this.#locals) {
      if (local.namespace !== namespace) continue;
      const known = this.#findPod(local);
      if (!known || selects(selector, known.group.labels)) this.#dirtyPods.add(key);
    }
  }

  #updateLocal(key: string): void {
    const former = this.#policed.get(key);
    const held = this.#held.get(key);
    const policed = this.#policedOf(key);
    const isSame = former !== undefined && policed !== undefined && isSamePoliced(former, policed);
    const isHeld = policed !== undefined && !isSame && !this.#isReady(policed);
    if (isHeld) this.#held.set(key, policed);
    else {
      this.#held.delete(key);
      if (policed) this.#policed.set(key, policed);
      else this.#policed.delete(key);
      if (!isSame) this.#untoldPods.add(key);
    }
    for (const direction of DIRECTIONS) {
      const left = new Set([held?.[direction], isHeld ? undefined : former?.[direction]]);
      left.delete(policed?.[direction]);
      left.delete(this.#policed.get(key)?.[direction]);
      for (const chain of left) if (chain !== undefined) this.#leaveChain(chain, key);
    }
  }

  /** Whether the peers are known that its chains name. */
  #isReady(policed: PolicedPod): boolean {
    return DIRECTIONS.every((direction) => {
      const chain = policed[direction];
      return chain === undefined ||
        this.#chains.get(chain)!.sets.every(({ peers }) => !peers || this.#isListed(peers.scope.members));
    });
  }

  /** One whose labels are not known is closed, if any policy may select it. */
  #policedOf(key: string): PolicedPod | undefined {
    const local = this.#locals.get(key);
    if (!local) return undefined;
    const known = this.#findPod(local);
    const uid = known?.pod.uid ?? local.uid;
    const pod = { owner: uid === undefined ? podKey(local) : `${podKey(local)} ${uid}`, ips: local.ips };
    if (!known) return this.isKnown(local) ? pod : { ...pod, isClosed: true };
    const [ingress, egress] = DIRECTIONS.map((direction) => this.#enterChain(direction, key, known.group));
    return {
      ...pod,
      ...ingress !== undefined && { ingress },
      ...egress !== undefined && { egress },
    };
  }

  /** @returns its key; `undefined` if no policy isolates the pod in that direction */
  #enterChain(direction: PolicyDirection, pod: string, { namespace, labels }: PodGroup): string | undefined {
    const selecting = [...this.#policyIndex.get(namespace)?.selecting(labels) ?? []]
      .filter(({ policy }) => policy[direction]);
    if (selecting.length === 0) return undefined;
    const rules = new Map<string, CompiledRule>();
    for (const known of selecting) {
      known.rules[direction] ??= compileRules(known.policy, direction);
      for (const rule of known.rules[direction]) rules.set(rule.text, rule);
    }
    return this.#useChain(direction, pod, [...rules.values()].sort((a, b) => a.text < b.text ? -1 : 1));
  }

  #useChain(direction: PolicyDirection, pod: string, rules: readonly CompiledRule[]): string {
    const key = `${direction} ${rules.map(({ text }) => text).join(" ")}`;
    const used = this.#chains.get(key) ?? this.#addChain(key, direction, rules);
    used.pods.add(pod);
    this.#idleChains.delete(key);
    return key;
  }

  #addChain(key: string, direction: PolicyDirection, rules: readonly CompiledRule[]): UsedChain {
    const sources = new Map(rules.flatMap(({ sets }) => [...sets]));
    const sets = [...sources].map(([name, source]) => this.#enterSet(name, source));
    const used: UsedChain = { chain: { key, direction, rules: rules.map(({ rule }) => rule) }, sets, pods: new Set() };
    this.#chains.set(key, used);
    this.#chainsAdded.add(key);
    return used;
  }

  /** It stays until the next change of the kernel: another pod may want it meanwhile. */
  #leaveChain(key: string, pod: string): void {
    const { pods } = this.#chains.get(key)!;
    pods.delete(pod);
    if (pods.size === 0) this.#idleChains.add(key);
  }

  #removeChain(key: string, chainsRemoved: string[], setsRemoved: string[]): void {
    const { sets } = this.#chains.get(key)!;
    this.#chains.delete(key);
    if (!this.#chainsAdded.delete(key)) chainsRemoved.push(key);
    for (const set of sets) this.#leaveSet(set, setsRemoved);
  }

  #enterSet(key: string, source: SetSource): UsedSet {
    const known = this.#sets.get(key);
    if (known) {
      known.chains++;
      return known;
    }
    const selection = "peers" in source ? source.peers : undefined;
    const peers = selection && this.#peers.use(selection.scope, selection.selector);
    const set: UsedSet = { key, source, ...peers && { peers }, chains: 1 };
    this.#sets.set(key, set);
    if (peers) {
      const ofSelector = this.#setsOfSelector.get(peers) ?? new Set();
      this.#setsOfSelector.set(peers, ofSelector.add(set));
    }
    this.#setsAdded.add(key);
    return set;
  }

  #leaveSet(set: UsedSet, removed: string[]): void {
    if (--set.chains > 0) return;
    this.#sets.delete(set.key);
    this.#elements.forget(set.key);
    if (!this.#setsAdded.delete(set.key)) removed.push(set.key);
    if (!set.peers) return;
    const ofSelector = this.#setsOfSelector.get(set.peers)!;
    ofSelector.delete(set);
    if (ofSelector.size > 0) return;
    this.#setsOfSelector.delete(set.peers);
    this.#peers.leave(set.peers);
  }

  #notePeer(selector: PeerSelector, isAdded: boolean, ip: Ip, ports: readonly NamedPort[]): void {
    for (const { key, source } of this.#setsOfSelector.get(selector) ?? []) {
      if (this.#setsAdded.has(key)) continue;
      if (source.kind === "addresses") this.#elements.note(key, ip, isAdded);
      else if (source.kind === "ports") {
        for (const port of portsNamed(source.names, ports)) this.#elements.note(key, { ip, ...port }, isAdded);
      }
    }
  }

  /** Ports of this node's pods are in sets that no selector has. */
  #noteLocalPorts(pod: string, isAdded: boolean): void {
    for (const set of this.#sets.values()) {
      if (set.source.kind !== "ports" || set.peers || this.#setsAdded.has(set.key)) continue;
      for (const element of this.#localPorts(pod, set.source.names)) this.#elements.note(set.key, element, isAdded);
    }
  }

  #localPorts(pod: string, names: ReadonlySet<string>): PortElement[] {
    const local = this.#locals.get(pod);
    const known = local && this.#findPod(local);
    if (!known) return [];
    return portsNamed(names, known.pod.ports).flatMap((port) => local.ips.map((ip) => ({ ip, ...port })));
  }

  #peerSetOf({ source, peers: selector }: UsedSet): PeerSet {
    if (source.kind === "blocks") return { kind: "blocks", intervals: source.blocks.intervals };
    if (source.kind === "ranges") return source;
    if (source.kind === "addresses") {
      return { kind: "addresses", ips: repeatable(() => this.#peers.selected(selector!).map(([ip]) => ip)) };
    }
    const { names } = source;
    if (!selector) {
      return { kind: "ports", elements: [...this.#locals.keys()].flatMap((pod) => this.#localPorts(pod, names)) };
    }
    const elements = repeatable(() =>
      this.#peers.selected(selector).flatMap(([ip, ports]) => portsNamed(names, ports).map((port) => ({ ip, ...port })))
    );
    return { kind: "ports", elements };
  }
}

const repeatable = <T>(iterate: () => Iterator<T>): Iterable<T> => ({ [Symbol.iterator]: iterate });
