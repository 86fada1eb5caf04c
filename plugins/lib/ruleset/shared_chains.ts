/** Chains that several attachments' elements jump to. The first such element adds the chain, the last removes it. */
import type { ExpressionIn } from "../../../ffi/nft/expressions.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import type { Transaction } from "../../../ffi/nft/transaction.ts";
import { NFT_GOTO } from "../../../ffi/nft/uapi.ts";
import { appendRules, repairChain } from "./chain_rules.ts";
import type { RulesetSnapshot } from "./snapshot.ts";
import type { ChainElement } from "./table.ts";

/** Equal names mean equal rules. */
export interface SharedChain {
  readonly name: string;
  readonly rules: readonly (readonly ExpressionIn[])[];
  readonly comment?: string;
  /** Packets do not return to the calling rule. */
  readonly usesGoto?: boolean;
}

export interface EnsuredChains {
  /** Chains that had lost rules or chain elements. */
  readonly repaired: ReadonlySet<string>;
  /** The ruleset must not change before the commit. */
  readonly needsGeneration: boolean;
}

/** Also restores lost rules and chain elements. */
export function ensureChains(
  tx: Transaction,
  snapshot: RulesetSnapshot,
  chains: ReadonlyMap<string, SharedChain>,
): EnsuredChains {
  const { nl, table } = snapshot;
  const repaired = new Set<string>();
  let needsGeneration = false;
  for (const { name, rules, comment } of chains.values()) {
    const isNew = !snapshot.chain(name);
    const missingElements = listMissingChainElements(snapshot, name);
    const isComplete = !isNew && missingElements.length === 0 && snapshot.ruleCount(name) >= rules.length;
    if (isComplete) continue;
    if (isNew) tx.addChain({ family: table.family, table: table.table, name, comment });
    else repaired.add(name);
    if (isNew) appendRules(tx, table, name, rules);
    else if (snapshot.ruleCount(name) < rules.length) repairChain(tx, nl, table, name, rules);
    for (const { set, key, jumpsToChain, comment } of missingElements) {
      const data = jumpsToChain ? { data: { verdict: { code: NFT_GOTO, chain: name } } } : {};
      tx.addElements(table, set, [{ key, comment, ...data }]);
    }
    needsGeneration ||= missingElements.length > 0 || !isNew;
  }
  return { repaired, needsGeneration };
}

/** Ours and an administrator's. A higher remaining use count means that other elements jump there. */
const MAX_CHAIN_RULES = 16;

/**
 * Removes chains that only removed elements jump to.
 *
 * @param removedReferences how many removed elements jump to each chain
 * @param keptChains chains that this transaction keeps or adds
 */
export function removeUnusedChains(
  tx: Transaction,
  snapshot: RulesetSnapshot,
  removedReferences: ReadonlyMap<string, number>,
  keptChains: ReadonlySet<string>,
): void {
  const { nl, table } = snapshot;
  snapshot.fetch([], [...removedReferences.keys()]);
  const removedChains = new Set<string>();
  for (const [name, count] of removedReferences) {
    const use = snapshot.chain(name)?.use;
    if (use === undefined) continue;
    const chainElements = (table.chainElementsOf?.(name) ?? []).filter((element) => snapshot.element(element));
    const ownJumps = chainElements.filter(({ jumpsToChain }) => jumpsToChain).length;
    if (use - ownJumps - count > MAX_CHAIN_RULES) continue;
    // The kernel counts the chain's own rules too.
    if (use - nft.listRules(nl, table, name).length - ownJumps !== count) continue;
    removedChains.add(name);
    for (const { set, key, alsoOfChain } of chainElements) {
      const isStillNeeded = alsoOfChain !== undefined && !removedChains.has(alsoOfChain) &&
        (keptChains.has(alsoOfChain) || snapshot.chain(alsoOfChain));
      if (!isStillNeeded) tx.deleteElements(table, set, [{ key }]);
    }
    tx.deleteChain(table, name);
  }
}

export function listMissingChainElements(snapshot: RulesetSnapshot, chain: string): ChainElement[] {
  return (snapshot.table.chainElementsOf?.(chain) ?? []).filter((element) => !snapshot.element(element));
}
