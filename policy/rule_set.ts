/**
 * From the rules of a policy to those of the kernel, which name sets.
 *
 * Anybody may write rules of many peers and many ports: rules, sets and texts grow with the sum of both, not with their
 * product.
 *
 * @module
 */
import type { PolicyDirection, PolicyRule, PortMatch } from "../plugins/lib/policy/desired.ts";
import { keyDigest } from "../plugins/lib/policy/object_names.ts";
import type { NetworkPolicy, NetworkPolicyRule, PodPeer } from "./api/network_policy.ts";
import { portName } from "./api/pod.ts";
import { type Blocks, blocksOf } from "./blocks.ts";
import { type NamespaceScope, selectorKey } from "./pod_peers.ts";
import { type NumberedMatch, numberedMatches, type PortRange, rangesText } from "./port_ranges.ts";
import { type LabelSelector, parseSelector } from "./select/label_selector.ts";

/** Where the elements of a set come from. */
export type SetSource =
  | { readonly kind: "addresses"; readonly peers: PodSelection }
  | { readonly kind: "blocks"; readonly blocks: Blocks }
  | { readonly kind: "ranges"; readonly ranges: readonly PortRange[] }
  | NamedPorts;

export interface NamedPorts {
  readonly kind: "ports";
  /** Absent: ports of this node's pods. */
  readonly peers?: PodSelection;
  /** They are as `portName` has them. */
  readonly names: ReadonlySet<string>;
  readonly namesText: string;
}

export interface PodSelection {
  readonly scope: NamespaceScope;
  readonly selector: LabelSelector;
}

export interface CompiledRule {
  /** The same for rules that match the same. */
  readonly text: string;
  readonly rule: PolicyRule;
  /** Its rule names them by these keys. */
  readonly sets: ReadonlyMap<string, SetSource>;
}

const EVERY_POD: PodSelection = { scope: { labels: parseSelector({}) }, selector: parseSelector({}) };

/** Without rules that match nothing. */
export function compileRules(policy: NetworkPolicy, direction: PolicyDirection): CompiledRule[] {
  return (policy[direction] ?? []).flatMap((rule) => compileRule(policy.namespace, direction, rule));
}

/** A named port is one of the destination: of this node's pod, or of a pod among the peers. */
function compileRule(namespace: string, direction: PolicyDirection, rule: NetworkPolicyRule): CompiledRule[] {
  const { peers, ports } = rule;
  const selections = (peers ?? []).filter((peer) => "pods" in peer).map((peer) => selectionOf(namespace, peer));
  const blocks = blocksOf((peers ?? []).filter((peer) => "cidr" in peer));
  const inBlocks: SetSource[] = blocks.intervals.length === 0 ? [] : [{ kind: "blocks", blocks }];
  const everyPeer = peers && [
    ...selections.map((selection): SetSource => ({ kind: "addresses", peers: selection })),
    ...inBlocks,
  ];
  if (!ports) return newRule(everyPeer, undefined);
  const numbered = numberedMatches(ports.filter((port) => !("name" in port)));
  const names = new Set(ports.filter((port) => "name" in port).map(portName));
  if (names.size === 0) return newRule(everyPeer, numbered);
  const named: NamedPorts = { kind: "ports", names, namesText: textOfNames(names) };
  if (direction === "ingress") return newRule(everyPeer, [...numbered, named]);
  return [
    ...newRule(everyPeer, numbered),
    // Such ports are those of pods that the selector selects.
    ...newRule(undefined, selections.map((selection) => ({ ...named, peers: selection }))),
    // A block may have addresses of any pod.
    ...newRule(peers && inBlocks, [{ ...named, peers: EVERY_POD }]),
  ];
}

function selectionOf(namespace: string, { namespaces, pods }: PodPeer): PodSelection {
  return { scope: namespaces ? { labels: namespaces } : { name: namespace }, selector: pods };
}

/** Returns none if it matches nothing. */
function newRule(
  peers: readonly SetSource[] | undefined,
  ports: readonly (NumberedMatch | NamedPorts)[] | undefined,
): CompiledRule[] {
  if (peers?.length === 0 || ports?.length === 0) return [];
  const sets = new Map<string, SetSource>();
  const rule: PolicyRule = {
    ...peers && { peers: [...new Set(peers.map((source) => addSet(sets, source)))].sort() },
    ...ports && { ports: distinctMatches(ports.map((port) => matchOf(port, sets))) },
  };
  return [{ text: JSON.stringify(rule), rule, sets }];
}

function matchOf(port: NumberedMatch | NamedPorts, sets: Map<string, SetSource>): PortMatch {
  if ("names" in port) return { named: addSet(sets, port) };
  if (!("ranges" in port)) return port;
  const { protocol, ranges } = port;
  return { protocol, ranges: addSet(sets, { kind: "ranges", ranges }) };
}

function distinctMatches(matches: readonly PortMatch[]): PortMatch[] {
  const byText = new Map(matches.map((match) => [JSON.stringify(match), match]));
  return [...byText].sort(([a], [b]) => a < b ? -1 : 1).map(([, match]) => match);
}

function addSet(sets: Map<string, SetSource>, source: SetSource): string {
  const key = sourceKey(source);
  sets.set(key, source);
  return key;
}

/** Its first word tells the type of the set in the kernel, also to other releases. */
function sourceKey(source: SetSource): string {
  switch (source.kind) {
    case "addresses":
      return podsText(source.peers);
    case "blocks":
      return `blocks ${source.blocks.text}`;
    case "ranges":
      return `ranges ${rangesText(source.ranges)}`;
    case "ports":
      return `port ${source.namesText} of ${source.peers ? podsText(source.peers) : "pods of this node"}`;
  }
}

const podsText = ({ scope, selector }: PodSelection): string => selectorKey(scope, selector);

const NAMES_LENGTH = 64;

/** It is in the key of each selector of a rule, so it has to be short. */
function textOfNames(names: ReadonlySet<string>): string {
  const text = [...names].sort().join();
  return text.length <= NAMES_LENGTH ? text : `${text.slice(0, NAMES_LENGTH)}... ${keyDigest(text)}`;
}
