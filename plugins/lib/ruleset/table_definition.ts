/** How a table of our own is described: what it is made with, its rules, and the elements that belong to its shared chains. */
import type { ExpressionIn } from "../../../ffi/nft/expressions.ts";
import type * as nft from "../../../ffi/nft/objects.ts";
import type { Transaction } from "../../../ffi/nft/transaction.ts";

/** A table of our own, made when first needed and kept. */
export interface TableDefinition extends nft.TableKey {
  /** Adds the table and all that does not depend on attachments, but for the rules. */
  create(tx: TableBuilder): void;
  /** The rules that do not depend on attachments, in order. */
  rules(): readonly StaticRule[];
  /** A chain that nothing leads to, with the number of its rules: by it an ADD sees in one question whether the table is there and whole. */
  readonly sentinel: { readonly chain: string; readonly rules: number };
  /** What the elements of attachments are for, and the sets that they are in: records go by their order, so new ones come last. */
  readonly purposes: Readonly<Record<string, readonly string[]>>;
  /** What is there as long as a shared chain is. */
  chainElementsOf?(chain: string): readonly ChainElement[];
}

/** What a table is made with. */
export type TableBuilder = Pick<Transaction, "addTable" | "addSet" | "addChain">;

/** A rule and the chain that it stands in. */
export interface StaticRule {
  readonly chain: string;
  readonly expressions: readonly ExpressionIn[];
}

/** An element that belongs to no attachment but to a shared chain, and is there as long as the chain is. */
export interface ChainElement {
  readonly set: string;
  readonly key: Uint8Array;
  /** True of a verdict map, in which it leads to the chain. */
  readonly jumpsToChain?: boolean;
  /** The chain that it belongs to as well, if that is there. */
  readonly alsoOfChain?: string;
  readonly comment: string;
}
