/** Repairs tables of our own that lost rules, sets or chains. */
import * as nft from "../../../ffi/nft/objects.ts";
import { type Transaction, transaction } from "../../../ffi/nft/transaction.ts";
import { NFPROTO_BRIDGE } from "../../../ffi/nft/uapi.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { CniError, Code } from "../../../spec/error.ts";
import { bridgeTable } from "./bridge_table.ts";
import { repairChain } from "./chain_rules.ts";
import { listMissingRules } from "./table.ts";
import type { TableBuilder, TableDefinition } from "./table_definition.ts";
import { retryOnConflict } from "./retry.ts";
import { inetTable } from "./inet_table.ts";

export const TABLES: readonly TableDefinition[] = [inetTable, bridgeTable];

/**
 * Puts back the static chains, sets and rules of a table, if there is one. Its elements stay.
 *
 * @returns the chains that had lost rules: `chain "forward" of table "inet cni"`
 * @throws {CniError} if the table is another program's
 */
export function repairTable(nl: Netlink, table: TableDefinition): string[] {
  return retryOnConflict(() => {
    const generation = nft.getGenerationId(nl);
    const present = nft.findTable(nl, table);
    const missing = present ? listMissingRules(nl, table) : [];
    const tx = transaction(nl);
    if (present) table.create(missingObjectsBuilder(tx, nl, table, present.comment));
    for (const { chain } of missing) {
      const rules = table.rules().filter((staticRule) => staticRule.chain === chain).map(({ expressions }) =>
        expressions
      );
      repairChain(tx, nl, table, chain, rules);
    }
    tx.commit(generation);
    return missing.map(({ chain }) => `chain "${chain}" of ${describeTable(table)}`);
  });
}

/** `table "inet cni"` */
const describeTable = ({ family, table }: nft.TableKey): string =>
  `table "${family === NFPROTO_BRIDGE ? "bridge" : "inet"} ${table}"`;

/** Adds only what is missing. @throws {CniError} if the table is another program's */
function missingObjectsBuilder(
  tx: Transaction,
  nl: Netlink,
  table: TableDefinition,
  present: string | undefined,
): TableBuilder {
  return {
    addTable({ comment }) {
      if (present === comment) return tx;
      throw new CniError(Code.Internal, `Cannot repair ${describeTable(table)}: it was not made by this program`, {
        details: `it has no comment "${comment}"; this program makes one where there is none`,
      });
    },
    addSet: (set) => nft.findSet(nl, table, set.name ?? "") ? tx : tx.addSet(set),
    addChain: (chain) => nft.findChain(nl, table, chain.name ?? "") ? tx : tx.addChain(chain),
  };
}
