/** From the rules of a policy to those of the kernel, which name sets. @module */
import type { PolicyDirection, PolicyRule, PortMatch } from "../plugins/lib/policy/desired.ts";
import type { BlockPeer, NetworkPolicy, NetworkPolicyRule, PodPeer, RulePort } from "./api/network_policy.ts";
import { type Blocks, blocksOf } from "./blocks.ts";
import { type NamespaceScope, selectorKey } from "./pod_peers.ts";
import { type LabelSelector, parseSelector } from "./select/label_selector.ts";

/** Where the elements of a set come from. */
export type SetSource =
  | { readonly kind: "addresses"; readonly peers: PodSelection }
  | { readonly kind: "blocks"; readonly blocks: Blocks }
  /** Without peers: ports of this node's pods. */
  | { readonly kind: "ports"; readonly peers?: PodSelection; readonly name: string; readonly protocol: number };

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
  return (policy[direction] ?? []).flatMap((rule) => compileRule(policy.namespace, direction, rule) ?? []);
}

/** Returns `undefined` for a rule that matches nothing. */
export function compileRule(
  namespace: string,
  direction: PolicyDirection,
  { peers, ports }: NetworkPolicyRule,
): CompiledRule | undefined {
  const sets = new Map<string, SetSource>();
  const selections = (peers ?? []).filter((peer) => "pods" in peer).map((peer) => selectionOf(namespace, peer));
  const blocks = (peers ?? []).filter((peer) => "cidr" in peer);
  const peerKeys = peers && [
    ...selections.map((selection) => addSet(sets, { kind: "addresses", peers: selection })),
    ...blockKeys(blocks, sets),
  ];
  // A block may have addresses of any pod.
  const portOwners = !peers || blocks.length > 0 ? [EVERY_POD] : selections;
  const matches = ports?.flatMap((port) => portMatches(port, direction, portOwners, sets));
  if (peerKeys?.length === 0 || matches?.length === 0) return undefined;
  const rule: PolicyRule = {
    ...peerKeys && { peers: [...new Set(peerKeys)].sort() },
    ...matches && { ports: distinctMatches(matches) },
  };
  return { text: JSON.stringify(rule), rule, sets };
}

function selectionOf(namespace: string, { namespaces, pods }: PodPeer): PodSelection {
  return { scope: namespaces ? { labels: namespaces } : { name: namespace }, selector: pods };
}

function blockKeys(peers: readonly BlockPeer[], sets: Map<string, SetSource>): string[] {
  if (peers.length === 0) return [];
  const blocks = blocksOf(peers);
  return blocks.intervals.length === 0 ? [] : [addSet(sets, { kind: "blocks", blocks })];
}

/** A named port is one of the destination: of this node's pod, or of pods among the peers. */
function portMatches(
  port: RulePort,
  direction: PolicyDirection,
  selections: readonly PodSelection[],
  sets: Map<string, SetSource>,
): PortMatch[] {
  if (!("name" in port)) return [port];
  const { name, protocol } = port;
  const owners = direction === "ingress" ? [undefined] : selections;
  return owners.map((peers) => ({ named: addSet(sets, { kind: "ports", ...peers && { peers }, name, protocol }) }));
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

function sourceKey(source: SetSource): string {
  if (source.kind === "blocks") return `blocks ${source.blocks.text}`;
  const pods = source.peers ? selectorKey(source.peers.scope, source.peers.selector) : "pods of this node";
  return source.kind === "addresses" ? pods : `port ${source.name}/${source.protocol} of ${pods}`;
}
