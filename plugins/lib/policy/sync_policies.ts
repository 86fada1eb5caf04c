/** Compares the policies with the kernel, and changes what differs. */
import { familyOf, type Ip, ipFromBytes } from "../../../ffi/address.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import { ifnameField } from "../../../ffi/nft/statements.ts";
import { type Transaction, transaction } from "../../../ffi/nft/transaction.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { appendRules, isSameRule } from "../ruleset/chain_rules.ts";
import { directionMap, ISOLATED_PORTS, policyBridgeTable, policyTable } from "../ruleset/policy_tables.ts";
import { bridgePorts, listAttached } from "./attached_pods.ts";
import type { DesiredPolicy, PeerSet, PolicyChain } from "./desired.ts";
import { isPeerSet, isPolicyChain, peerSetName, policyChainName } from "./object_names.ts";
import { compareInIntervals, elementAddress, type PeerElement, peerElementId, peerElements } from "./peer_elements.ts";
import { addPeerSet, addPolicyChain, verdictsOf } from "./policy_objects.ts";
import { policyRules } from "./policy_rules.ts";
import { DIRECTIONS, verdictElement } from "./verdicts.ts";

const FAMILIES = [4, 6] as const;

/** Nobody uses new sets before chains name them, so they need not come at once. The buffer of a commit has a limit. */
const SETS_PER_COMMIT = 256;

export interface SyncOptions {
  /** Called after each set, whose elements are forgotten then. */
  onSet?(elements: number): void;
  /** Whether a set keeps an address that it is not to have, as not all peers are known. Without it, none does. */
  mayBePeer?(set: string, ip: Ip): boolean;
}

/** @returns what differed */
export function syncPolicies(nl: Netlink, desired: DesiredPolicy, options: SyncOptions): string[] {
  const presentSets = new Set(nft.listSets(nl, policyTable).flatMap(({ name = "" }) => isPeerSet(name) ? [name] : []));
  const isPresent = (key: string) => FAMILIES.every((family) => presentSets.has(peerSetName(key, family)));
  const newSets = [...desired.sets].filter(([key]) => !isPresent(key));
  for (let at = 0; at < newSets.length; at += SETS_PER_COMMIT) {
    const tx = transaction(nl);
    for (const [key, set] of newSets.slice(at, at + SETS_PER_COMMIT)) addPeerSet(tx, key, set);
    tx.commit();
  }
  const tx = transaction(nl);
  const changes = {
    sets: newSets.length,
    elements: 0,
    chains: 0,
    pods: 0,
  };
  const addedKeys = new Set(newSets.map(([key]) => key));
  const unusedSets = new Set(presentSets);
  for (const [key, set] of desired.sets) {
    for (const family of FAMILIES) unusedSets.delete(peerSetName(key, family));
    if (addedKeys.has(key)) continue;
    for (const family of FAMILIES) {
      const { present, differing } = syncPeerSet(nl, tx, key, set, family, options);
      changes.elements += differing;
      options.onSet?.(present);
    }
  }
  const { changed, unused } = syncChains(nl, tx, desired.chains.values());
  const { count, usedChains } = syncVerdicts(nl, tx, desired);
  changes.pods += count;
  const unusedChains = unused.filter((name) => !usedChains.has(name));
  for (const name of unusedChains) tx.deleteChain(policyTable, name);
  // Chains that stay for pods that are not known yet may name sets.
  const removableSets = unusedChains.length === unused.length ? [...unusedSets] : [];
  for (const name of removableSets) tx.deleteSet(policyTable, name);
  changes.chains += changed + unusedChains.length;
  changes.sets += removableSets.length;
  tx.commit();
  return Object.entries(changes).filter(([, number]) => number > 0).map(([what, number]) => `${number} ${what}`);
}

/** @returns how many elements were there, and how many differed */
function syncPeerSet(
  nl: Netlink,
  tx: Transaction,
  key: string,
  set: PeerSet,
  family: 4 | 6,
  { mayBePeer }: SyncOptions,
): { readonly present: number; readonly differing: number } {
  const name = peerSetName(key, family);
  const present = nft.listElements(nl, policyTable, name);
  const wanted = peerElements(set, family);
  const surplus = new Map<string, PeerElement>(present.map((element) => [peerElementId(element), element]));
  const missing = wanted.filter((element) => !surplus.delete(peerElementId(element)));
  if (set.kind === "blocks" || set.kind === "ranges") {
    const differing = surplus.size + missing.length;
    if (differing > 0) replaceIntervals(tx, name, present, wanted);
    return { present: present.length, differing };
  }
  if (mayBePeer) {
    for (const [id, element] of surplus) {
      if (mayBePeer(key, elementAddress(element.key, family))) surplus.delete(id);
    }
  }
  if (surplus.size > 0) tx.deleteElements(policyTable, name, [...surplus.values()]);
  if (missing.length > 0) tx.addElements(policyTable, name, missing);
  return { present: present.length, differing: surplus.size + missing.length };
}

/** The kernel may refuse to delete the end of an interval, except right behind its beginning. */
function replaceIntervals(
  tx: Transaction,
  name: string,
  present: readonly PeerElement[],
  wanted: readonly PeerElement[],
): void {
  tx.deleteElements(policyTable, name, present.toSorted(compareInIntervals));
  if (wanted.length > 0) tx.addElements(policyTable, name, wanted);
}

function syncChains(
  nl: Netlink,
  tx: Transaction,
  chains: Iterable<PolicyChain>,
): { readonly changed: number; readonly unused: readonly string[] } {
  const present = new Set(
    nft.listChains(nl, policyTable).flatMap(({ name = "" }) => isPolicyChain(name) ? [name] : []),
  );
  const rules = Map.groupBy(nft.listLazyRules(nl, policyTable), ({ chain }) => chain);
  const unused = new Set(present);
  let changed = 0;
  for (const chain of chains) {
    const names = FAMILIES.map((family) => policyChainName(chain.key, family));
    for (const name of names) unused.delete(name);
    if (!names.some((name) => present.has(name))) {
      addPolicyChain(tx, chain);
      changed++;
      continue;
    }
    for (const family of FAMILIES) {
      const name = policyChainName(chain.key, family);
      const wanted = policyRules(chain, family);
      const found = rules.get(name) ?? [];
      if (found.length === wanted.length && wanted.every((each, i) => isSameRule(found[i]!, each))) continue;
      if (!present.has(name)) tx.addChain({ family: policyTable.family, table: policyTable.table, name });
      for (const { handle } of found) tx.deleteRule(policyTable, name, handle);
      appendRules(tx, policyTable, name, wanted);
      changed++;
    }
  }
  return { changed, unused: [...unused] };
}

/** An attached address that is not among the pods keeps what it has. */
function syncVerdicts(
  nl: Netlink,
  tx: Transaction,
  { pods }: DesiredPolicy,
): { readonly count: number; readonly usedChains: ReadonlySet<string> } {
  const verdicts = [...pods].flatMap(verdictsOf);
  const named = new Set(verdicts.map(({ ip }) => ip));
  const attached = new Set(listAttached(nl).map(({ ip }) => ip));
  const usedChains = new Set<string>();
  const isolatedIps = new Set<string>();
  let count = 0;
  for (const direction of DIRECTIONS) {
    for (const family of FAMILIES) {
      const map = directionMap(direction, family);
      const wanted = new Map(
        verdicts.flatMap((verdict) => {
          const chain = familyOf(verdict.ip) === family ? verdict[direction] : undefined;
          return chain === undefined ? [] : [[verdict.ip, verdictElement(chain, verdict)] as const];
        }),
      );
      for (const ip of wanted.keys()) isolatedIps.add(ip);
      for (const element of nft.listElements(nl, policyTable, map)) {
        const ip = ipFromBytes(element.key);
        const chain = element.data?.verdict?.chain ?? "";
        const target = wanted.get(ip);
        const isKept = target ? target.data?.verdict?.chain === chain : !named.has(ip) && attached.has(ip);
        if (!isKept) {
          tx.deleteElements(policyTable, map, [element]);
          if (!target) count++;
          continue;
        }
        wanted.delete(ip);
        isolatedIps.add(ip);
        usedChains.add(chain);
      }
      if (wanted.size > 0) tx.addElements(policyTable, map, [...wanted.values()]);
      count += wanted.size;
    }
  }
  return { count: count + syncIsolatedPorts(nl, tx, isolatedIps), usedChains };
}

function syncIsolatedPorts(nl: Netlink, tx: Transaction, isolatedIps: ReadonlySet<string>): number {
  const wanted = new Map(
    [...bridgePorts(nl)].filter(([ip]) => isolatedIps.has(ip)).map(([, port]) => [ifnameField(port).toHex(), port]),
  );
  const surplus = nft.listElements(nl, policyBridgeTable, ISOLATED_PORTS)
    .filter(({ key }) => !wanted.delete(key.toHex()));
  if (surplus.length > 0) tx.deleteElements(policyBridgeTable, ISOLATED_PORTS, surplus);
  const missing = [...wanted.values()].map((port) => ({ key: ifnameField(port) }));
  if (missing.length > 0) tx.addElements(policyBridgeTable, ISOLATED_PORTS, missing);
  return surplus.length + missing.length;
}
