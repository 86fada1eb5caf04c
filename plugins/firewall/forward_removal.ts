/**
 * Removes rules from foreign tables: ours with the last container, per-container ones of the reference and of earlier
 * versions.
 */
import { hostPrefix, type Ip, ipBytes } from "../../ffi/address.ts";
import type { Expression } from "../../ffi/nft/expressions.ts";
import * as nft from "../../ffi/nft/objects.ts";
import {
  containsBytes,
  containsText,
  jumpsUnconditionallyTo,
  normalizedText,
  ruleComment,
  unconditionalJumpTarget,
} from "../../ffi/nft/rule_contents.ts";
import { accept, counter, daddrIn, saddrIn, xtCtstateEstablishedRelated } from "../../ffi/nft/statements.ts";
import { type Transaction, transaction } from "../../ffi/nft/transaction.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { type Owner, parseOwner } from "../lib/model/owner.ts";
import { EARLY_CHAIN } from "../lib/ruleset/forward_mark.ts";
import { inetTable } from "../lib/ruleset/inet_table.ts";
import { acceptsMarked } from "../lib/ruleset/marked_accept.ts";
import { retryOnConflict } from "../lib/ruleset/retry.ts";
import { FORWARD_CHAIN, isAdminJump, MADE_ADMIN_COMMENT, MADE_COMMENT } from "./cni_forward_chain.ts";
import {
  type BaseChainLister,
  baseChainLister,
  findChains,
  type ForeignTable,
  listForeignTables,
} from "../lib/ruleset/foreign_tables.ts";
import { IPTABLES_FORWARD_CHAINS, listForwardChains } from "./foreign_forward_chains.ts";

/** The reference's `ingressPolicy` chains, in the order of removal. */
const REFERENCE_CHAINS = ["CNI-ISOLATION-STAGE-1", "CNI-ISOLATION-STAGE-2"] as const;

export interface RemovalFilter {
  /** Prefilter: all comments of the owners' rules contain this text. */
  readonly commented: string;
  /** Matches the per-container rules of earlier versions. */
  isOwned(owner: Owner): boolean;
  /** Addresses whose ownerless rules, the reference's, go too. */
  readonly addresses?: readonly Ip[];
}

/**
 * Removes containers' rules, and with the last one the chain and its jumps.
 *
 * @param isUnused whether no container has the plugin, so the shared rule goes too
 */
export function removeForwardAccept(nl: Netlink, removal: RemovalFilter, isUnused: () => boolean): void {
  retryOnConflict(() => {
    const generation = nft.getGenerationId(nl);
    const noneLeft = isUnused();
    const tx = transaction(nl);
    const tables = listForeignTables(nl, [4, 6]).filter(({ isMissing }) => !isMissing);
    const listBaseChains = baseChainLister(nl);
    for (const [foreignTable, chains] of findChains(nl, tables, [FORWARD_CHAIN])) {
      if (!chains.has(FORWARD_CHAIN)) continue;
      const chainRules = nft.listLazyRules(nl, foreignTable, FORWARD_CHAIN);
      const removed = new Set(
        chainRules.filter((rule) => matchesRemoval(rule, removal) || noneLeft && acceptsMarked(rule)),
      );
      for (const { handle } of removed) tx.deleteRule(foreignTable, FORWARD_CHAIN, handle);
      const kept = chainRules.filter((rule) => !removed.has(rule));
      if ((removed.size > 0 || noneLeft) && kept.every(isAdminJump)) {
        removeForwardChain(tx, nl, listBaseChains, foreignTable, chainRules.length, kept);
      }
    }
    const earlyChain = noneLeft && nft.findChain(nl, inetTable, EARLY_CHAIN.name);
    if (earlyChain) tx.deleteChain(inetTable, EARLY_CHAIN.name);
    tx.commit(generation);
  });
}

function matchesRemoval(rule: nft.LazyRule, { commented, isOwned, addresses = [] }: RemovalFilter): boolean {
  if (containsText(rule, commented)) {
    const owner = parseOwner(ruleComment(rule));
    if (owner && isOwned(owner)) return true;
  }
  const matched = addresses.filter((address) => containsBytes(rule, ipBytes(address)));
  if (matched.length === 0 || ruleComment(rule) !== "") return false;
  const text = normalizedText(rule.expressions());
  return matched.some((address) => referenceTexts(address).includes(text));
}

function referenceTexts(address: Ip): string[] {
  const prefix = hostPrefix(address);
  const withoutFamily = (expressions: Expression[]) => normalizedText(expressions.slice(2));
  return [
    [...daddrIn(prefix), ...xtCtstateEstablishedRelated(), ...counter(), ...accept()],
    [...saddrIn(prefix), ...counter(), ...accept()],
  ].map((expressions) => withoutFamily(expressions as Expression[]));
}

/** Keeps what other rules use. */
function removeForwardChain(
  tx: Transaction,
  nl: Netlink,
  listBaseChains: BaseChainLister,
  foreignTable: ForeignTable,
  size: number,
  adminJumps: readonly nft.LazyRule[],
): void {
  // An administrator's own chain stays, even if empty.
  const madeAdminChains = adminJumps.filter((rule) => ruleComment(rule) === MADE_ADMIN_COMMENT)
    .flatMap((rule) => unconditionalJumpTarget(rule) ?? []);
  const names = [FORWARD_CHAIN, ...IPTABLES_FORWARD_CHAINS, ...REFERENCE_CHAINS, ...madeAdminChains];
  const chains = findChains(nl, [foreignTable], names).get(foreignTable)!;
  const forwardChains = listForwardChains(listBaseChains, foreignTable, chains).filter(({ isMissing }) => !isMissing);
  const baseRules = forwardChains.flatMap(({ chain }) =>
    nft.listLazyRules(nl, foreignTable, chain).map((rule) => ({ ...rule, chain }))
  );
  let removedChains = 0;
  const removeChain = (name: string, ownReferences: number): boolean => {
    const jumps = baseRules.filter((rule) => jumpsUnconditionallyTo(rule, name));
    if (chains.get(name)?.use !== ownReferences + jumps.length) return false;
    for (const { handle, chain } of jumps) tx.deleteRule(foreignTable, chain, handle);
    tx.deleteChain(foreignTable, name);
    removedChains++;
    return true;
  };
  if (!removeChain(FORWARD_CHAIN, size)) return;
  // One reference was a jump from the removed chain.
  for (const name of madeAdminChains) removeChain(name, 1);
  removeReferenceChains(nl, foreignTable, chains, removeChain);
  const [base, ...others] = forwardChains;
  const isEmpty = base && others.length === 0 && !base.dropsByPolicy &&
    baseRules.every((rule) => jumpsUnconditionallyTo(rule, FORWARD_CHAIN));
  if (foreignTable.comment !== MADE_COMMENT || !isEmpty) return;
  if (nft.findTable(nl, foreignTable)?.use === removedChains + forwardChains.length) tx.deleteTable(foreignTable);
}

function removeReferenceChains(
  nl: Netlink,
  foreignTable: ForeignTable,
  chains: ReadonlyMap<string, nft.Chain>,
  removeChain: (name: string, ownReferences: number) => boolean,
): void {
  const [stage1Chain, stage2Chain] = REFERENCE_CHAINS;
  if (!chains.has(stage1Chain) || !chains.has(stage2Chain)) return;
  const stage1 = nft.listLazyRules(nl, foreignTable, stage1Chain);
  const stage2 = nft.listLazyRules(nl, foreignTable, stage2Chain);
  const jumps = stage1.filter((rule) => containsText(rule, stage2Chain)).length;
  const isUnused = chains.get(stage2Chain)?.use === stage2.length + jumps;
  if (isUnused && removeChain(stage1Chain, stage1.length)) removeChain(stage2Chain, stage2.length + jumps);
}
