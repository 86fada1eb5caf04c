/**
 * What the reference plugins leave in the ruleset, by the names that they give it: how containers that they attached are found and removed.
 *
 * A node that never saw them pays one system call per DEL: which of these tables there are. Their iptables chains stand in tables that iptables makes
 * and that are everybody's; those stay, with the base chains that iptables makes in them. Tables of their own go with the last rule.
 */
import * as nft from "../../../ffi/nft/objects.ts";
import { type Transaction, transaction } from "../../../ffi/nft/transaction.ts";
import { NFPROTO_IPV4, NFPROTO_IPV6 } from "../../../ffi/nft/uapi.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { containsText, jumpTarget, ruleComment } from "../../../ffi/nft/rule_contents.ts";
import { retryOnConflict } from "../ruleset/retry.ts";
import type { Owner } from "../protocol/owner.ts";

/** What the reference knows an attachment by: in most places it does not look at the interface. */
export type ReferenceOwner = Pick<Owner, "network" | "containerId">;

/** Where iptables keeps what it translates. */
export const NAT_TABLES: readonly nft.TableKey[] = [
  { family: NFPROTO_IPV4, table: "nat" },
  { family: NFPROTO_IPV6, table: "nat" },
];
export const isNatTable = ({ table }: nft.TableKey): boolean => table === "nat";

/** The reference cuts SHA-512 as hexadecimal digits. */
export function shortHash(text: string, length: number): string {
  return new Bun.CryptoHasher("sha512").update(text).digest("hex").slice(0, length);
}

/** iptables takes 28 characters. */
const MAX_CHAIN_LENGTH = 28;

/** The name of a container's chain: the prefix says what for. */
export function referenceChainName(
  prefix: "CNI-" | "CNI-DN-" | "CNI-SN-",
  { network, containerId }: ReferenceOwner,
): string {
  return prefix + shortHash(`${network}${containerId}`, MAX_CHAIN_LENGTH - prefix.length);
}

/** Whose the rule is, by the comment that the reference gives to iptables; names hold nothing that would have to be quoted. */
export function parseReferenceOwner(rule: nft.LazyRule): ReferenceOwner | undefined {
  const [, network, containerId] = /^(?:dnat )?name: "([^"]+)" id: "([^"]+)"$/.exec(ruleComment(rule)) ?? [];
  return network && containerId ? { network, containerId } : undefined;
}

/** The owners in a chain's rules that are of this network and live no more. */
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

/** Those of the tables that there are: nothing is asked about others, nor about rules. @throws {NetlinkError} */
export function existingTables(nl: Netlink, tables: readonly nft.TableKey[]): nft.TableKey[] {
  const found = nft.getAll(nl, tables.map(nft.tableQuery));
  return tables.filter((_, i) => found[i]);
}

/** Reads and changes the ruleset as one step: starts again if another program changed it meanwhile. @throws {NetlinkError} */
export function updateRuleset(nl: Netlink, fillTransaction: (tx: Transaction) => void): void {
  retryOnConflict(() => {
    const generation = nft.getGenerationId(nl);
    const tx = transaction(nl);
    fillTransaction(tx);
    if (!tx.isEmpty) tx.commit(generation);
  });
}

/** What is to go from a table. */
export interface ChainRemoval {
  /** Chains, those that lead to others before the others. */
  readonly chains: readonly string[];
  /** Chains that stay, in which rules lead to those that go. */
  readonly jumpingChains: readonly string[];
  /** Which of these rules go; all unless told. */
  shouldRemove?(rule: nft.LazyRule): boolean;
}

/** Removes chains with the rules that lead to them; a chain stays that another program's rule jumps to. @throws {NetlinkError} */
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

/** Removes rules from a table that is the reference's own, and with the last of them the table. */
export interface RuleRemoval {
  /** All chains that the reference makes there; with another one, the table belongs to another program too. */
  readonly knownChains: readonly string[];
  /** Those of them that hold a rule per container. */
  readonly chains: readonly string[];
  shouldRemove(rule: nft.LazyRule): boolean;
}

/** @throws {NetlinkError} */
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
