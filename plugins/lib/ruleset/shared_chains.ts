/**
 * Chains that several attachments lead packets to: made with the first element that leads there, removed with the last.
 *
 * @module
 */
import type { ExpressionIn } from "../../../ffi/nft/expressions.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import type { Transaction } from "../../../ffi/nft/transaction.ts";
import { NFT_GOTO } from "../../../ffi/nft/uapi.ts";
import { addRules, findChainLoss, mendChain } from "./chain_rules.ts";
import type { View } from "./snapshot.ts";

/** A chain that elements lead to. Equal names mean equal rules. */
export interface SharedChain {
  readonly name: string;
  readonly rules: readonly (readonly ExpressionIn[])[];
  readonly comment?: string;
  /** True if packets do not come back from it to the rule behind the one that led there. */
  readonly isFinal?: boolean;
}

/** An element that belongs to no attachment but to a shared chain, and is there as long as the chain is. */
export interface Companion {
  readonly set: string;
  readonly key: Uint8Array;
  /** True of a verdict map, in which it leads to the chain. */
  readonly leads?: boolean;
  /** The chain that it belongs to as well, if that is there. */
  readonly alsoOf?: string;
  readonly comment: string;
}

/** What {@linkcode ensureChains} found and did. */
export interface EnsuredChains {
  /** Names of the chains that were there, but without some of their rules or companions, which they have got back. */
  readonly mended: ReadonlySet<string>;
  /** True if the ruleset must not change before the transaction is committed. */
  readonly relies: boolean;
}

/** Adds those of the chains that are missing, and what was taken away from the others. @throws {NetlinkError} */
export function ensureChains(
  tx: Transaction,
  view: View,
  chains: ReadonlyMap<string, SharedChain>,
): EnsuredChains {
  const { nl, table } = view;
  const mended = new Set<string>();
  let relies = false;
  for (const { name, rules, comment } of chains.values()) {
    const isNew = !view.chain(name);
    const lost = listLostCompanions(view, name);
    const isWhole = !isNew && lost.length === 0 && !findChainLoss(nl, table, name, rules.length);
    if (isWhole) continue;
    if (isNew) tx.addChain({ family: table.family, table: table.table, name, comment });
    else mended.add(name);
    if (isNew) addRules(tx, table, name, rules);
    else mendChain(tx, nl, table, name, rules);
    for (const { set, key, leads, comment } of lost) {
      const data = leads ? { data: { verdict: { code: NFT_GOTO, chain: name } } } : {};
      tx.addElements(table, set, [{ key, comment, ...data }]);
    }
    relies ||= lost.length > 0 || !isNew;
  }
  return { mended, relies };
}

/** No chain has more, even if an administrator adds some: where more than that leads to it or stands in it, its rules need not be counted. */
const MOST_RULES = 16;

/**
 * Removes those of the chains to which nothing leads but elements of which as many are removed as `led` says.
 *
 * @param wanted chains that there are after this transaction, whether there are now or not
 */
export function removeUnusedChains(
  tx: Transaction,
  view: View,
  led: ReadonlyMap<string, number>,
  wanted: ReadonlySet<string>,
): void {
  const { nl, table } = view;
  view.look([], [...led.keys()]);
  const gone = new Set<string>();
  for (const [name, count] of led) {
    const use = view.chain(name)?.use;
    if (use === undefined) continue;
    const companions = (table.companionsOf?.(name) ?? []).filter((each) => view.element(each));
    const leading = companions.filter(({ leads }) => leads).length;
    // Others lead there as well, for certain.
    if (use - leading - count > MOST_RULES) continue;
    // The kernel counts the chain's own rules as well.
    if (use - nft.listRules(nl, table, name).length - leading !== count) continue;
    gone.add(name);
    for (const { set, key, alsoOf } of companions) {
      const stays = alsoOf !== undefined && !gone.has(alsoOf) &&
        (wanted.has(alsoOf) || view.chain(alsoOf));
      if (!stays) tx.deleteElements(table, set, [{ key }]);
    }
    tx.deleteChain(table, name);
  }
}

/** The companions of a chain that are missing. @throws {NetlinkError} */
export function listLostCompanions(view: View, chain: string): Companion[] {
  return (view.table.companionsOf?.(chain) ?? []).filter((each) => !view.element(each));
}
