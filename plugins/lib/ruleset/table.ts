/** Tables of our own: made when first needed, and kept. */
import { checkFailedError } from "../protocol/check_failed.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import { type Transaction, transaction } from "../../../ffi/nft/transaction.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import { CniError, Code } from "../../../spec/error.ts";
import { describeMissingRules, findMissingRules, type MissingRules } from "./chain_rules.ts";
import type { TableDefinition } from "./table_definition.ts";

/**
 * Makes the table if there is none.
 *
 * A table without its rules is not repaired here: shared chains lost theirs too, and only the runtime knows what those were.
 *
 * @returns true if the table is new
 * @throws {CniError} if rules were removed
 * @throws {NetlinkError} `EEXIST` if another process made it meanwhile
 */
export function ensureTable(nl: Netlink, table: TableDefinition, sentinelChain: nft.Chain | undefined): boolean {
  const { chain, rules: expected } = table.sentinel;
  // A table is made together with its chains: if there is one now, the second answer is right.
  const presentChain = sentinelChain ?? (nft.findTable(nl, table) && (nft.findChain(nl, table, chain) ?? { use: 0 }));
  if (!presentChain) {
    const tx = transaction(nl);
    addTableWithRules(tx, table);
    tx.commit();
  } else if ((presentChain.use ?? 0) < expected) {
    throw new CniError(
      Code.Internal,
      `Cannot use the ruleset: its ${describeMissingRules({ chain, present: presentChain.use ?? 0, expected })}`,
      {
        details: restoreHint(table),
      },
    );
  }
  return !sentinelChain;
}

/** @throws {CniError} if a rule was removed: elements do nothing without their rules */
export function checkStaticRules(nl: Netlink, table: TableDefinition): void {
  const [missing] = listMissingRules(nl, table);
  if (missing) throw missingRulesError(table, missing);
}

export function missingRulesError(table: TableDefinition, missing: MissingRules): CniError {
  return checkFailedError(`the ruleset's ${describeMissingRules(missing)}`, restoreHint(table));
}

/** Checks that the table is whole, or that the kernel would take it. @throws {CniError} code 50 */
export function requireTable(nl: Netlink, table: TableDefinition): void {
  const missing = verifyTable(nl, table);
  if (!missing) return;
  throw new CniError(Code.NotAvailable, `Cannot use the ruleset: its ${describeMissingRules(missing)}`, {
    details: restoreHint(table),
  });
}

function verifyTable(nl: Netlink, table: TableDefinition): MissingRules | undefined {
  try {
    if (nft.findTable(nl, table)) return listMissingRules(nl, table)[0];
    const tx = transaction(nl);
    addTableWithRules(tx, table);
    tx.check();
    return undefined;
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    throw new CniError(Code.NotAvailable, "Cannot use nf_tables of this kernel", {
      details: error.message,
      cause: error,
    });
  }
}

function addTableWithRules(tx: Transaction, table: TableDefinition): void {
  table.create(tx);
  for (const staticRule of table.rules()) tx.addRule({ family: table.family, table: table.table, ...staticRule });
}

export function listMissingRules(nl: Netlink, table: TableDefinition): MissingRules[] {
  const expectedCounts = new Map<string, number>();
  for (const { chain } of table.rules()) expectedCounts.set(chain, (expectedCounts.get(chain) ?? 0) + 1);
  return [...expectedCounts].flatMap(([chain, expected]) => findMissingRules(nl, table, chain, expected) ?? []);
}

const restoreHint = ({ table }: TableDefinition): string =>
  `table "${table}"; put back what is missing: cni run restore`;
