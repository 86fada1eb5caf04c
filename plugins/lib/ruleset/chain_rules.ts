/** The rules of a chain of our own: whether they are all there, and how they are put back. */
import type { ExpressionIn } from "../../../ffi/nft/expressions.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import type { Transaction } from "../../../ffi/nft/transaction.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";

/** A chain from which rules were taken away. */
export interface MissingRules {
  readonly chain: string;
  readonly present: number;
  readonly expected: number;
}

/** The rules that a chain lacks, if any; a chain that is gone lacks all. More rules than ours are an administrator's. @throws {NetlinkError} */
export function findMissingRules(
  nl: Netlink,
  key: nft.TableKey,
  chain: string,
  expected: number,
): MissingRules | undefined {
  const present = nft.listLazyRules(nl, key, chain).length;
  return present < expected ? { chain, present, expected } : undefined;
}

/** `chain "postrouting" has 0 rules, expected 4` */
export function describeMissingRules({ chain, present, expected }: MissingRules): string {
  return `chain "${chain}" has ${present} rules, expected ${expected}`;
}

/**
 * Puts the rules of a chain back, in their order and behind those that other programs put there, which stay.
 *
 * The ruleset must not change before the transaction is committed.
 */
export function repairChain(
  tx: Transaction,
  nl: Netlink,
  { family, table }: nft.TableKey,
  chain: string,
  rules: readonly (readonly ExpressionIn[])[],
): void {
  // Of a chain that lost nothing, as where only a chain element is missing, this would give every rule another handle.
  if (!findMissingRules(nl, { family, table }, chain, rules.length)) return;
  for (const { handle, expressions } of nft.listLazyRules(nl, { family, table }, chain)) {
    const presentExpressions = expressions();
    const isOurs = rules.some((rule) =>
      rule.length === presentExpressions.length && isSuperset(presentExpressions, rule)
    );
    if (isOurs) tx.deleteRule({ family, table }, chain, handle);
  }
  appendRules(tx, { family, table }, chain, rules);
}

/** Adds rules behind those of a chain. */
export function appendRules(
  tx: Transaction,
  { family, table }: nft.TableKey,
  chain: string,
  rules: readonly (readonly ExpressionIn[])[],
): void {
  for (const expressions of rules) tx.addRule({ family, table, chain, expressions });
}

/** True if all that was sent came back; the kernel adds what goes without saying. */
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
