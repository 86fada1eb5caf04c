/**
 * A table of nf_tables that is this program's own: made when it is first needed and kept, with rules that do not depend on attachments.
 *
 * @module
 */
import type { ExpressionIn } from "../../../ffi/nft/expressions.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import { type Transaction, transaction } from "../../../ffi/nft/transaction.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import { CniError, Code } from "../../../spec/error.ts";
import { describeLoss, findChainLoss, type Loss } from "./chain_rules.ts";
import type { Companion } from "./shared_chains.ts";

/** A table of our own, made when first needed and kept. */
export interface OwnTable extends nft.TableKey {
  /** Adds the table and all that does not depend on attachments, but for the rules. */
  create(tx: Creation): void;
  /** The rules that do not depend on attachments, in order. */
  rules(): readonly FixedRule[];
  /** A chain that nothing leads to, with the number of its rules: by it an ADD sees in one question whether the table is there and whole. */
  readonly sentinel: { readonly chain: string; readonly rules: number };
  /** What is there as long as a shared chain is. */
  companionsOf?(chain: string): readonly Companion[];
}

/** What a table is made with. */
export type Creation = Pick<Transaction, "addTable" | "addSet" | "addChain">;

/** A rule and the chain that it stands in. */
export interface FixedRule {
  readonly chain: string;
  readonly expressions: readonly ExpressionIn[];
}

/**
 * Makes the table unless it is there.
 *
 * One whose rules somebody removed is not repaired here: with them went those of the chains that other attachments lead to, and only what
 * is remembered of these says what they were. Elements in it would do nothing, and nobody would notice.
 *
 * @param seen its sentinel, as far as that was seen
 * @returns true if the table has come to be since
 * @throws {CniError} if rules were taken away
 * @throws {NetlinkError} `EEXIST` if another process made it meanwhile
 */
export function ensureTable(nl: Netlink, table: OwnTable, seen: nft.Chain | undefined): boolean {
  const { chain, rules: expected } = table.sentinel;
  // A table is made with its chains or not at all, so that of one that has just come to be the second answer tells.
  const found = seen ?? (nft.findTable(nl, table) && (nft.findChain(nl, table, chain) ?? { use: 0 }));
  if (!found) {
    const tx = transaction(nl);
    addTable(tx, table);
    tx.commit();
  } else if ((found.use ?? 0) < expected) {
    throw new CniError(
      Code.Internal,
      `Cannot use the ruleset: its ${describeLoss({ chain, present: found.use ?? 0, expected })}`,
      {
        details: remedy(table),
      },
    );
  }
  return !seen;
}

/** Checks that no rule was taken away: elements do nothing without the rules that look them up. @throws {CniError} on the first that was */
export function checkRules(nl: Netlink, table: OwnTable): void {
  const [loss] = listLosses(nl, table);
  if (loss) throw lossError(table, loss);
}

/** What CHECK fails with where a chain lost rules. */
export function lossError(table: OwnTable, loss: Loss): CniError {
  return new CniError(Code.Internal, `Check failed: the ruleset's ${describeLoss(loss)}`, { details: remedy(table) });
}

/** Makes sure that the table is whole, or that the kernel would take it, without changing anything. @throws {CniError} code 50 */
export function requireTable(nl: Netlink, table: OwnTable): void {
  const loss = tryTable(nl, table);
  if (!loss) return;
  throw new CniError(Code.NotAvailable, `Cannot use the ruleset: its ${describeLoss(loss)}`, {
    details: remedy(table),
  });
}

function tryTable(nl: Netlink, table: OwnTable): Loss | undefined {
  try {
    if (nft.findTable(nl, table)) return listLosses(nl, table)[0];
    const tx = transaction(nl);
    addTable(tx, table);
    tx.verify();
    return undefined;
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    throw new CniError(Code.NotAvailable, "Cannot use nf_tables of this kernel", {
      details: error.message,
      cause: error,
    });
  }
}

function addTable(tx: Transaction, table: OwnTable): void {
  table.create(tx);
  for (const each of table.rules()) tx.addRule({ family: table.family, table: table.table, ...each });
}

/** The chains with fewer rules than they were made with. @throws {NetlinkError} */
export function listLosses(nl: Netlink, table: OwnTable): Loss[] {
  const wanted = new Map<string, number>();
  for (const { chain } of table.rules()) wanted.set(chain, (wanted.get(chain) ?? 0) + 1);
  return [...wanted].flatMap(([chain, expected]) => findChainLoss(nl, table, chain, expected) ?? []);
}

const remedy = ({ table }: OwnTable): string => `table "${table}"; put back what is missing: cni run restore`;
