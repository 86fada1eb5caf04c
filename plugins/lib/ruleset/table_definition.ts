/** How a table of our own is described. */
import type { ExpressionIn } from "../../../ffi/nft/expressions.ts";
import type * as nft from "../../../ffi/nft/objects.ts";
import type { Transaction } from "../../../ffi/nft/transaction.ts";

export interface TableDefinition extends nft.TableKey {
  /** Adds the table with its sets and chains, without rules. */
  create(tx: TableBuilder): void;
  rules(): readonly StaticRule[];
  /** A base chain and the number of its rules: with one query, an ADD sees whether the table is there and whole. */
  readonly sentinel: { readonly chain: string; readonly rules: number };
  /** Purposes of elements, and their sets. Records use the position of a set: new sets come last. */
  readonly purposes: Readonly<Record<string, readonly string[]>>;
  /** The elements that exist as long as a shared chain does. */
  chainElementsOf?(chain: string): readonly ChainElement[];
}

export type TableBuilder = Pick<Transaction, "addTable" | "addSet" | "addChain">;

export interface StaticRule {
  readonly chain: string;
  readonly expressions: readonly ExpressionIn[];
}

/** An element of a shared chain, not of an attachment. */
export interface ChainElement {
  readonly set: string;
  readonly key: Uint8Array;
  /** In a verdict map: the element leads to the chain. */
  readonly jumpsToChain?: boolean;
  /** Another chain that needs the element too. */
  readonly alsoOfChain?: string;
  readonly comment: string;
}
