import type { ExpressionIn } from "../../../ffi/nft/expressions.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import type { Transaction } from "../../../ffi/nft/transaction.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";

export interface MissingRules {
  readonly chain: string;
  readonly present: number;
  readonly expected: number;
}

/** Surplus rules are an administrator's. */
export function findMissingRules(
  nl: Netlink,
  key: nft.TableKey,
  chain: string,
  expected: number,
): MissingRules | undefined {
  const present = nft.listLazyRules(nl, key, chain).length;
  return present < expected ? { chain, present, expected } : undefined;
}

export function describeMissingRules({ chain, present, expected }: MissingRules): string {
  return `chain "${chain}" has ${present} rules, expected ${expected}`;
}

/**
 * Restores an incomplete chain's rules behind those of other programs. Rewriting a complete one would change its rules'
 * handles. Commit this with the generation.
 */
export function repairChain(
  tx: Transaction,
  nl: Netlink,
  table: nft.TableKey,
  chain: string,
  rules: readonly (readonly ExpressionIn[])[],
): void {
  const present = nft.listLazyRules(nl, table, chain);
  for (const found of present) {
    if (rules.some((rule) => isSameRule(found, rule))) tx.deleteRule(table, chain, found.handle);
  }
  appendRules(tx, table, chain, rules);
}

export function appendRules(
  tx: Transaction,
  { family, table }: nft.TableKey,
  chain: string,
  rules: readonly (readonly ExpressionIn[])[],
): void {
  for (const expressions of rules) tx.addRule({ family, table, chain, expressions });
}

export function isSameRule(found: nft.LazyRule, rule: readonly ExpressionIn[]): boolean {
  const expressions = found.expressions();
  return rule.length === expressions.length && isSuperset(expressions, rule);
}

/** The kernel adds default values. */
function isSuperset(present: unknown, expected: unknown): boolean {
  if (expected instanceof Uint8Array) {
    return present instanceof Uint8Array && nft.formatHex(present) === nft.formatHex(expected);
  }
  if (typeof expected !== "object" || expected === null) return present === expected;
  if (typeof present !== "object" || present === null) return false;
  return Object.entries(expected).every(([key, value]) =>
    value === undefined || isSuperset((present as Record<string, unknown>)[key], value)
  );
}
