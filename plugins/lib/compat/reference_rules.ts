/**
 * Finds and removes the reference plugins' rules by their names.
 *
 * Without them, a DEL pays one system call to learn which tables exist. iptables' tables and base chains stay. Tables
 * of the reference go with their last rule.
 */
import * as nft from "../../../ffi/nft/objects.ts";
import { type Transaction, transaction } from "../../../ffi/nft/transaction.ts";
import { NFPROTO_IPV4, NFPROTO_IPV6 } from "../../../ffi/nft/uapi.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { containsText, jumpTarget, ruleComment } from "../../../ffi/nft/rule_contents.ts";
import { retryOnConflict } from "../ruleset/retry.ts";
import type { Owner } from "../model/owner.ts";

/** In most places the reference ignores the interface. */
export type ReferenceOwner = Pick<Owner, "network" | "containerId">;

export const NAT_TABLES: readonly nft.TableKey[] = [
  { family: NFPROTO_IPV4, table: "nat" },
  { family: NFPROTO_IPV6, table: "nat" },
];
export const isNatTable = ({ table }: nft.TableKey): boolean => table === "nat";

/** The Go plugins shorten names like this: SHA-512 in hexadecimal. */
export function shortHash(text: string, length: number): string {
  return new Bun.CryptoHasher("sha512").update(text).digest("hex").slice(0, length);
}

/** iptables refuses chains with longer names. */
const MAX_CHAIN_LENGTH = 28;

export function referenceChainName(
  prefix: "CNI-" | "CNI-DN-" | "CNI-SN-",
  { network, containerId }: ReferenceOwner,
): string {
  return prefix + shortHash(`${network}${containerId}`, MAX_CHAIN_LENGTH - prefix.length);
}

/** The owner in the reference's iptables comment. Names need no quoting. */
export function parseReferenceOwner(rule: nft.LazyRule): ReferenceOwner | undefined {
  const [, network, containerId] = /^(?:dnat )?name: "([^"]+)" id: "([^"]+)"$/.exec(ruleComment(rule)) ?? [];
  return network && containerId ? { network, containerId } : undefined;
}

export function staleOwnersIn(
  rules: readonly nft.LazyRule[],
  network: string,
  validAttachments: readonly Omit<Owner, "network">[],
): ReferenceOwner[] {
  const validContainerIds = new Set(validAttachments.map(({ containerId }) => containerId));
  return rules.filter((rule) => containsText(rule, `name: "${network}" id: "`)).flatMap((rule) => {
    const owner = parseReferenceOwner(rule);
    return owner && owner.network === network && !validContainerIds.has(owner.containerId) ? [owner] : [];
  });
}

export function existingTables(nl: Netlink, tables: readonly nft.TableKey[]): nft.TableKey[] {
  const found = nft.getAll(nl, tables.map(nft.tableQuery));
  return tables.filter((_, i) => found[i]);
}

/** Leaves out iptables' tables without the owner's chain. */
export function tablesWithRulesOf(
  nl: Netlink,
  tables: readonly nft.TableKey[],
  prefix: "CNI-" | "CNI-DN-",
  owner: ReferenceOwner,
): nft.TableKey[] {
  return existingTables(nl, tables)
    .filter((table) => !isNatTable(table) || nft.findChain(nl, table, referenceChainName(prefix, owner)));
}

/** Returns all owners if only rules can tell. */
export function ownersWithRulesIn(
  nl: Netlink,
  tables: readonly nft.TableKey[],
  prefix: "CNI-" | "CNI-DN-",
  owners: readonly Owner[],
): ReadonlySet<Owner> {
  const existing = existingTables(nl, tables);
  if (existing.some((table) => !isNatTable(table))) return new Set(owners);
  const names = owners.map((owner) => referenceChainName(prefix, owner));
  // By name: kube-proxy has a chain for each Service and each endpoint there.
  const found = existing.map((table) => nft.getAll(nl, names.map((name) => nft.chainQuery(table, name))));
  return new Set(owners.filter((_, i) => found.some((chains) => chains[i])));
}

export function updateRuleset(nl: Netlink, fillTransaction: (tx: Transaction) => void): void {
  retryOnConflict(() => {
    const generation = nft.getGenerationId(nl);
    const tx = transaction(nl);
    fillTransaction(tx);
    tx.commit(generation);
  });
}

export interface ChainRemoval {
  /** A chain comes before those that it calls. */
  readonly chains: readonly string[];
  /** Chains that stay, but lose their jumps to `chains`. */
  readonly jumpingChains: readonly string[];
  /** Selects among these jumps; all by default. */
  shouldRemove?(rule: nft.LazyRule): boolean;
}

/** Removes chains and the jumps to them, except chains that another program's rule jumps to. */
export function removeReferenceChains(
  tx: Transaction,
  nl: Netlink,
  table: nft.TableKey,
  { chains, jumpingChains, shouldRemove = () => true }: ChainRemoval,
): void {
  const removedJumps = new Map<string, number>();
  const countJump = (rule: nft.LazyRule): boolean => {
    const target = jumpTarget(rule);
    if (target === undefined || !chains.includes(target)) return false;
    removedJumps.set(target, (removedJumps.get(target) ?? 0) + 1);
    return true;
  };
  for (const jumpingChain of jumpingChains) {
    const jumps = nft.listLazyRules(nl, table, jumpingChain).filter((rule) =>
      chains.some((chain) => containsText(rule, chain))
    );
    for (const rule of jumps.filter(shouldRemove).filter(countJump)) tx.deleteRule(table, jumpingChain, rule.handle);
  }
  for (const name of chains) {
    const use = nft.findChain(nl, table, name)?.use;
    if (use === undefined) continue;
    const rules = nft.listLazyRules(nl, table, name);
    if (use !== rules.length + (removedJumps.get(name) ?? 0)) continue;
    tx.deleteChain(table, name);
    rules.forEach(countJump);
  }
}

export interface RuleRemoval {
  /** All chains that the reference makes. With any other chain, another program uses the table too. */
  readonly knownChains: readonly string[];
  /** Chains with a rule per container. */
  readonly chains: readonly string[];
  shouldRemove(rule: nft.LazyRule): boolean;
}

export function removeReferenceRules(
  tx: Transaction,
  nl: Netlink,
  table: nft.TableKey,
  { knownChains, chains, shouldRemove }: RuleRemoval,
): void {
  let remaining = 0;
  let removed = 0;
  for (const chain of chains) {
    for (const rule of nft.listLazyRules(nl, table, chain)) {
      if (!shouldRemove(rule)) {
        remaining++;
        continue;
      }
      tx.deleteRule(table, chain, rule.handle);
      removed++;
    }
  }
  if (removed === 0 || remaining > 0) return;
  if (nft.listChains(nl, table).every(({ name = "" }) => knownChains.includes(name))) tx.deleteTable(table);
}
