/** What is counted and logged of packets that policy drops: by the reasons, not by pods, which come and go. */
import type { ExpressionIn } from "../../../ffi/nft/expressions.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import { counter, drop, limitPerSecond, logToGroup, rule } from "../../../ffi/nft/statements.ts";
import { transaction } from "../../../ffi/nft/transaction.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { appendRules, isSameRule } from "../ruleset/chain_rules.ts";
import { DROP_CHAINS, type DropReason } from "../ruleset/policy_tables.ts";
import { retryOnConflict } from "../ruleset/retry.ts";

export interface DropHandling {
  readonly isCounted: boolean;
  /** How many packets are logged a second, at most, for each reason; absent: none. */
  readonly logRate?: number;
}

/** Of nfnetlink_log. Other programs begin with small numbers. */
export const DROP_LOG_GROUP = 25_454;
const PREFIX = "cni_policy ";

/** Returns `undefined` for what other rules log there. */
export const loggedReason = (prefix: string): DropReason | undefined =>
  prefix.startsWith(PREFIX) ? prefix.slice(PREFIX.length) as DropReason : undefined;

function dropChainRules(reason: DropReason, { isCounted, logRate }: DropHandling): (readonly ExpressionIn[])[] {
  return [
    ...logRate === undefined ? [] : [rule(limitPerSecond(logRate), logToGroup(DROP_LOG_GROUP, PREFIX + reason))],
    isCounted ? rule(counter(), drop()) : rule(drop()),
  ];
}

/** The plugin makes the chains with a counter, as it knows no options of the server. */
export function handleDrops(nl: Netlink, handling: DropHandling): void {
  retryOnConflict(() => {
    const tx = transaction(nl);
    for (const [table, chains] of DROP_CHAINS) {
      for (const { name, reason } of chains) {
        const wanted = dropChainRules(reason, handling);
        const found = nft.listLazyRules(nl, table, name);
        const isRight = found.length === wanted.length && wanted.every((each, i) => isSameRule(found[i]!, each));
        // A chain without rules is missing, or is to be repaired.
        if (isRight || found.length === 0) continue;
        for (const { handle } of found) tx.deleteRule(table, name, handle);
        appendRules(tx, table, name, wanted);
      }
    }
    tx.commit();
  });
}

/** Without reasons that are not counted. */
export function countDrops(nl: Netlink): ReadonlyMap<DropReason, number> {
  const counts = new Map<DropReason, number>();
  for (const [table, chains] of DROP_CHAINS) {
    for (const { name, reason } of chains) {
      for (const expression of nft.listLazyRules(nl, table, name).flatMap((each) => each.expressions())) {
        if (expression.kind !== "counter") continue;
        counts.set(reason, (counts.get(reason) ?? 0) + Number(expression.packets ?? 0n));
      }
    }
  }
  return counts;
}
