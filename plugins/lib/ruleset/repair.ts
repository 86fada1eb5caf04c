import * as nft from "../../../ffi/nft/objects.ts";
import { transaction } from "../../../ffi/nft/transaction.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { CniError, Code } from "../../../spec/error.ts";
import { bridgeTable } from "./bridge_table.ts";
import { repairChain } from "./chain_rules.ts";
import {
  addObjects,
  describeTable,
  foreignTableHint,
  isOwnTable,
  listFormerRules,
  listMissingRules,
  listOutdatedChains,
  looksOurs,
  type TableDefinition,
  withoutAdded,
} from "./table.ts";
import { policyBridgeTable, policyTable } from "./policy_tables.ts";
import { retryOnConflict } from "./retry.ts";
import { inetTable } from "./inet_table.ts";

export const TABLES: readonly TableDefinition[] = [inetTable, bridgeTable, policyTable, policyBridgeTable];

const MAX_NAMED_CHAINS = 3;

/** What {@linkcode repairTable} put back: a line for a log. A whole table has 11 chains. */
export function describeRestoredChains(chains: readonly string[]): string {
  const named = chains.slice(0, MAX_NAMED_CHAINS).join(", ");
  const others = chains.length - MAX_NAMED_CHAINS;
  return others > 0 ? `Restored ${named} and ${others} more` : `Restored ${named}`;
}

/**
 * Restores a table's static chains, sets and rules, and removes those of earlier releases. Its elements stay.
 *
 * @returns the chains that had lost rules: `chain "forward" of table "inet cni"`; none for a table of an earlier release
 * @throws {CniError} if the table is another program's
 */
export function repairTable(nl: Netlink, table: TableDefinition): string[] {
  return retryOnConflict(() => {
    const generation = nft.getGenerationId(nl);
    const present = nft.findTable(nl, table);
    if (!present) return [];
    const former = listFormerRules(nl, table);
    const isUpgrade = former.length > 0;
    const missing = isUpgrade ? listOutdatedChains(nl, table) : listMissingRules(nl, table);
    const lost = isUpgrade ? missing : withoutAdded(nl, table, missing);
    if (lost.length > 0 && !isOwnTable(table, present) && !looksOurs(former)) {
      throw new CniError(Code.Internal, `Cannot repair ${describeTable(table)}: it was not made by this program`, {
        details: foreignTableHint(table),
      });
    }
    const tx = transaction(nl);
    for (const { chain, handles, isWholeChain } of former) {
      for (const handle of handles) tx.deleteRule(table, chain, handle);
      if (isWholeChain) tx.deleteChain(table, chain);
    }
    addObjects(tx, table, (find, name) => !find(nl, table, name));
    for (const { chain } of missing) {
      const rules = table.rules().filter((staticRule) => staticRule.chain === chain);
      repairChain(tx, nl, table, chain, rules.map(({ expressions }) => expressions));
    }
    tx.commit(generation);
    return isUpgrade ? [] : lost.map(({ chain }) => `chain "${chain}" of ${describeTable(table)}`);
  });
}
