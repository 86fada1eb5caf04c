/**
 * A table of nf_tables that is this program's own: made when it is first needed and kept, with rules that do not depend on attachments.
 *
 * @module
 */
import type { ExpressionIn } from "../../ffi/nft/expressions.ts";
import * as nft from "../../ffi/nft/objects.ts";
import { type Transaction, transaction } from "../../ffi/nft/transaction.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { CniError, Code } from "../spec/error.ts";
import type { Companion } from "./shared_chains.ts";

/** A table of our own, made when first needed and kept. */
export interface OwnTable extends nft.TableKey {
  /** Adds the table and all that does not depend on attachments, but for the rules. */
  create(tx: Transaction): void;
  /** The rules that do not depend on attachments, in order. */
  rules(): readonly FixedRule[];
  /** A chain that nothing leads to, with the number of its rules: by it an ADD sees in one question whether the table is there and whole. */
  readonly sentinel: { readonly chain: string; readonly rules: number };
  /** What is there as long as a shared chain is. */
  companionsOf?(chain: string): readonly Companion[];
}

/** A rule and the chain that it stands in. */
export interface FixedRule {
  readonly chain: string;
  readonly expressions: readonly ExpressionIn[];
}

/** A chain from which rules were taken away. */
interface Loss {
  readonly chain: string;
  readonly present: number;
  readonly expected: number;
}

/**
 * Makes the table unless it is there.
 *
 * One whose rules somebody removed is not repaired: with them went those of the chains that attachments lead to, of which nobody knows
 * what they were. Elements in it would do nothing, and nobody would notice.
 *
 * @throws {CniError} if rules were taken away
 * @throws {NetlinkError} `EEXIST` if another process made it meanwhile
 */
export function ensureTable(nl: Netlink, table: OwnTable): void {
  const { chain, rules: expected } = table.sentinel;
  // A table is made with its chains or not at all, so that of one that has just come to be the second answer tells.
  const found = nft.findChain(nl, table, chain) ??
    (nft.findTable(nl, table) && (nft.findChain(nl, table, chain) ?? { use: 0 }));
  if (!found) {
    const tx = transaction(nl);
    addTable(tx, table);
    tx.commit();
  } else if ((found.use ?? 0) < expected) {
    throw new CniError(
      Code.Internal,
      `Cannot use the ruleset: its ${describe({ chain, present: found.use ?? 0, expected })}`,
      {
        details: remedy(table),
      },
    );
  }
}

/** Checks that no rule was taken away: elements do nothing without the rules that look them up. @throws {CniError} on the first that was */
export function checkRules(nl: Netlink, table: OwnTable): void {
  const loss = findLoss(nl, table);
  if (loss) {
    throw new CniError(Code.Internal, `Check failed: the ruleset's ${describe(loss)}`, { details: remedy(table) });
  }
}

/** Makes sure that the table is whole, or that the kernel would take it, without changing anything. @throws {CniError} code 50 */
export function requireTable(nl: Netlink, table: OwnTable): void {
  const loss = tryTable(nl, table);
  if (!loss) return;
  throw new CniError(Code.NotAvailable, `Cannot use the ruleset: its ${describe(loss)}`, { details: remedy(table) });
}

function tryTable(nl: Netlink, table: OwnTable): Loss | undefined {
  try {
    if (nft.findTable(nl, table)) return findLoss(nl, table);
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

/** The first chain with fewer rules than it was made with. More rules than ours are somebody's wish. */
function findLoss(nl: Netlink, table: OwnTable): Loss | undefined {
  const wanted = new Map<string, number>();
  for (const { chain } of table.rules()) wanted.set(chain, (wanted.get(chain) ?? 0) + 1);
  for (const [chain, expected] of wanted) {
    const present = nft.listRules(nl, table, chain).length;
    if (present < expected) return { chain, present, expected };
  }
  return undefined;
}

const describe = ({ chain, present, expected }: Loss): string =>
  `chain "${chain}" has ${present} rules, expected ${expected}`;

const remedy = ({ table }: OwnTable): string =>
  `table "${table}"; it is made anew once it has been deleted as a whole, and containers have then to be attached again`;
