/**
 * Which known pods each selector in use selects.
 *
 * Pods of a namespace with the same labels are a group: a selector selects all of it or nothing. So a pod that changes
 * concerns the selectors of its groups before and after, and no others.
 *
 * @module
 */
import type { Ip } from "../ffi/address.ts";
import { isSameNamespace, type PolicyNamespace } from "./api/namespace.ts";
import { type LabelledPod, type NamedPort, podKey } from "./api/pod.ts";
import { type LabelSelector, selects } from "./select/label_selector.ts";
import { type Labels, labelsText } from "./select/labels.ts";
import { addTo, deleteFrom, labelTexts, requiredLabels, SelectorIndex } from "./select/selector_index.ts";

/** Whose namespaces: one by its name, or those that a selector selects. */
export type NamespaceScope = { readonly name: string } | { readonly labels: LabelSelector };

export interface PeerSelector {
  readonly key: string;
  readonly selector: LabelSelector;
  readonly scope: Scope;
  readonly groups: Set<PodGroup>;
}

/** A list has each element once, in any order. Most groups have few, for which a set takes much more memory. */
export interface PodGroup {
  readonly namespace: string;
  readonly labels: Labels;
  readonly pods: KnownPod[];
  readonly peerSelectors: PeerSelector[];
}

export interface KnownPod {
  readonly pod: LabelledPod;
  readonly group: PodGroup;
  /** Those that it is to have: an address that two pods claim has one owner. */
  readonly ips: readonly Ip[];
  /** Whether the addresses are those that a plugin attached on this node. */
  readonly isAttached: boolean;
}

interface Scope {
  readonly key: string;
  readonly what: NamespaceScope;
  /** They are names of namespaces. */
  readonly members: Set<string>;
  readonly index: SelectorIndex<PeerSelector>;
}

/** Told of each address that enters or leaves what a selector selects. */
export type OnPeerChange = (selector: PeerSelector, isAdded: boolean, ip: Ip, ports: readonly NamedPort[]) => void;

export class PodPeers {
  readonly #onChange: OnPeerChange;
  readonly #namespaces = new Map<string, PolicyNamespace>();
  /** The UID of a pod finds it. */
  readonly #pods = new Map<string, KnownPod>();
  /** UIDs by `namespace/name`: of several, that of the latest. */
  readonly #names = new Map<string, string>();
  /** By namespace, then by the text of the labels. */
  readonly #groups = new Map<string, Map<string, PodGroup>>();
  /** Keys are those of {@linkcode labelTexts}. */
  readonly #groupsByLabel = new Map<string, Set<PodGroup>>();
  readonly #owners = new Map<Ip, KnownPod>();
  /** Pods that claim an address of another one, the latest last. */
  readonly #waiting = new Map<Ip, Set<KnownPod>>();
  readonly #selectors = new Map<string, PeerSelector>();
  readonly #scopes = new Map<string, Scope>();
  /** Scopes with a selector of namespaces. */
  readonly #labelScopes = new Set<Scope>();

  constructor(onChange: OnPeerChange) {
    this.#onChange = onChange;
  }

  find(uid: string): KnownPod | undefined {
    return this.#pods.get(uid);
  }

  /** @param name `namespace/name` */
  findNamed(name: string): KnownPod | undefined {
    const uid = this.#names.get(name);
    return uid === undefined ? undefined : this.#pods.get(uid);
  }

  all(): Iterable<KnownPod> {
    return this.#pods.values();
  }

  ownerOf(ip: Ip): KnownPod | undefined {
    return this.#owners.get(ip);
  }

  get podCount(): number {
    return this.#pods.size;
  }

  namespace(name: string): PolicyNamespace | undefined {
    return this.#namespaces.get(name);
  }

  namespaces(): Iterable<PolicyNamespace> {
    return this.#namespaces.values();
  }

  /** Namespaces with pods that selectors in use may select. */
  selectedNamespaces(): Set<string> {
    return new Set(this.#scopes.values().flatMap(({ members }) => members));
  }

  putPod(pod: LabelledPod, ips: readonly Ip[], isAttached: boolean): void {
    const { uid } = pod;
    const former = this.#pods.get(uid);
    const group = this.#ensureGroup(pod.namespace, pod.labels);
    const known: KnownPod = { pod, group, ips, isAttached };
    if (former) this.#leave(former);
    else this.#names.set(podKey(pod), uid);
    this.#pods.set(uid, known);
    group.pods.push(known);
    for (const ip of ips) this.#claim(ip, known);
    if (former) this.#dropIfEmpty(former.group);
  }

  removePod(uid: string): void {
    const known = this.#pods.get(uid);
    if (!known) return;
    this.#leave(known);
    this.#pods.delete(uid);
    const name = podKey(known.pod);
    if (this.#names.get(name) === uid) this.#names.delete(name);
    this.#dropIfEmpty(known.group);
  }

  /** @returns whether anything has changed */
  putNamespace(namespace: PolicyNamespace): boolean {
    const former = this.#namespaces.get(namespace.name);
    if (former && isSameNamespace(former, namespace)) return false;
    this.#namespaces.set(namespace.name, namespace);
    this.#matchScopes(namespace.name);
    return true;
  }

  removeNamespace(name: string): void {
    if (this.#namespaces.delete(name)) this.#matchScopes(name);
  }

  /** From now on, its changes are told. What it selects already is not. */
  use(scope: NamespaceScope, selector: LabelSelector): PeerSelector {
    const key = selectorKey(scope, selector);
    const known = this.#selectors.get(key);
    if (known) return known;
    const owner = this.#ensureScope(scope);
    const peerSelector: PeerSelector = { key, selector, scope: owner, groups: new Set() };
    this.#selectors.set(key, peerSelector);
    owner.index.add(peerSelector);
    for (const group of this.#groupsOf(owner, selector)) connect(group, peerSelector);
    return peerSelector;
  }

  leave(selector: PeerSelector): void {
    this.#selectors.delete(selector.key);
    for (const group of selector.groups) removeFrom(group.peerSelectors, selector);
    const { scope } = selector;
    scope.index.delete(selector);
    if (!scope.index.isEmpty) return;
    this.#scopes.delete(scope.key);
    this.#labelScopes.delete(scope);
  }

  /** Addresses that the selector selects, each once. */
  *selected({ groups }: PeerSelector): Generator<readonly [ip: Ip, ports: readonly NamedPort[]]> {
    for (const { pods } of groups) {
      for (const known of pods) {
        for (const ip of known.ips) if (this.#owners.get(ip) === known) yield [ip, known.pod.ports];
      }
    }
  }

  isSelected({ groups }: PeerSelector, ip: Ip): boolean {
    const owner = this.#owners.get(ip);
    return owner !== undefined && groups.has(owner.group);
  }

  #leave(known: KnownPod): void {
    removeFrom(known.group.pods, known);
    for (const ip of known.ips) this.#release(ip, known);
  }

  /** What a plugin has attached is right. Otherwise the last one that claims an address is. */
  #claim(ip: Ip, known: KnownPod): void {
    const owner = this.#owners.get(ip);
    if (owner && owner.isAttached && !known.isAttached) return addTo(this.#waiting, ip, known);
    if (owner) {
      addTo(this.#waiting, ip, owner);
      this.#tell(owner, ip, false);
    }
    this.#owners.set(ip, known);
    this.#tell(known, ip, true);
  }

  #release(ip: Ip, known: KnownPod): void {
    deleteFrom(this.#waiting, ip, known);
    if (this.#owners.get(ip) !== known) return;
    this.#owners.delete(ip);
    this.#tell(known, ip, false);
    const next = [...this.#waiting.get(ip) ?? []].at(-1);
    if (!next) return;
    deleteFrom(this.#waiting, ip, next);
    this.#claim(ip, next);
  }

  #tell({ group, pod }: KnownPod, ip: Ip, isAdded: boolean): void {
    for (const selector of group.peerSelectors) this.#onChange(selector, isAdded, ip, pod.ports);
  }

  #ensureGroup(namespace: string, labels: Labels): PodGroup {
    const text = labelsText(labels);
    const groups = this.#groups.get(namespace) ?? new Map<string, PodGroup>();
    this.#groups.set(namespace, groups);
    const known = groups.get(text);
    if (known) return known;
    const group: PodGroup = { namespace, labels, pods: [], peerSelectors: [] };
    groups.set(text, group);
    for (const label of labelTexts(labels)) addTo(this.#groupsByLabel, label, group);
    for (const scope of this.#scopesOf(namespace)) {
      for (const selector of scope.index.selecting(labels)) connect(group, selector);
    }
    return group;
  }

  #dropIfEmpty(group: PodGroup): void {
    const { namespace, labels, pods, peerSelectors } = group;
    if (pods.length > 0) return;
    const groups = this.#groups.get(namespace)!;
    if (!groups.delete(labelsText(labels))) return;
    if (groups.size === 0) this.#groups.delete(namespace);
    for (const label of labelTexts(labels)) deleteFrom(this.#groupsByLabel, label, group);
    for (const selector of peerSelectors) selector.groups.delete(group);
  }

  #scopesOf(namespace: string): Scope[] {
    const named = this.#scopes.get(scopeKey({ name: namespace }));
    const byLabels = [...this.#labelScopes].filter(({ members }) => members.has(namespace));
    return named ? [named, ...byLabels] : byLabels;
  }

  #ensureScope(what: NamespaceScope): Scope {
    const key = scopeKey(what);
    const known = this.#scopes.get(key);
    if (known) return known;
    const members = "name" in what
      ? [what.name]
      : this.#namespaces.values().filter(({ labels }) => selects(what.labels, labels)).map(({ name }) => name);
    const scope: Scope = { key, what, members: new Set(members), index: new SelectorIndex() };
    this.#scopes.set(key, scope);
    if ("labels" in what) this.#labelScopes.add(scope);
    return scope;
  }

  #groupsOf({ members }: Scope, selector: LabelSelector): Iterable<PodGroup> {
    const texts = requiredLabels(selector);
    const candidates = texts
      ? texts.flatMap((text) => [...this.#groupsByLabel.get(text) ?? []])
      : [...members].flatMap((name) => [...this.#groups.get(name)?.values() ?? []]);
    return candidates.filter(({ namespace, labels }) => members.has(namespace) && selects(selector, labels));
  }

  /** A namespace that is not known is selected by nothing but its name. */
  #matchScopes(name: string): void {
    const namespace = this.#namespaces.get(name);
    for (const scope of this.#labelScopes) {
      const { labels } = scope.what as { readonly labels: LabelSelector };
      const isMember = namespace !== undefined && selects(labels, namespace.labels);
      if (isMember === scope.members.has(name)) continue;
      if (isMember) scope.members.add(name);
      else scope.members.delete(name);
      for (const group of this.#groups.get(name)?.values() ?? []) this.#matchGroup(group, scope, isMember);
    }
  }

  #matchGroup(group: PodGroup, { index }: Scope, isMember: boolean): void {
    for (const selector of index.selecting(group.labels)) {
      if (isMember) connect(group, selector);
      else {
        removeFrom(group.peerSelectors, selector);
        selector.groups.delete(group);
      }
      for (const known of group.pods) {
        for (const ip of known.ips) {
          if (this.#owners.get(ip) === known) this.#onChange(selector, isMember, ip, known.pod.ports);
        }
      }
    }
  }
}

function connect(group: PodGroup, selector: PeerSelector): void {
  group.peerSelectors.push(selector);
  selector.groups.add(group);
}

/** @param value one that the list has */
function removeFrom<T>(list: T[], value: T): void {
  const last = list.pop()!;
  if (last !== value) list[list.indexOf(value)] = last;
}

export const scopeKey = (scope: NamespaceScope): string => "name" in scope ? scope.name : `{${scope.labels.text}}`;

export const selectorKey = (scope: NamespaceScope, selector: LabelSelector): string =>
  `pods ${scopeKey(scope)}/${selector.text}`;
