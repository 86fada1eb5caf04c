import { checkFailedError } from "../protocol/check_failed.ts";
import type { ExpressionIn } from "../../../ffi/nft/expressions.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import { type Transaction, transaction } from "../../../ffi/nft/transaction.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { NFPROTO_BRIDGE } from "../../../ffi/nft/uapi.ts";
import { ignoreErrors, SystemError } from "../../../ffi/sys/error.ts";
import { CniError, Code } from "../../../spec/error.ts";
import { describeMissingRules, isSameRule, type MissingRules } from "./chain_rules.ts";
import { requireTakenByKernel } from "./kernel_support.ts";

/** Sets, chains and static rules in a table of ours: created on demand, then kept. */
export interface TablePart {
  objects(): { readonly sets: readonly SetIn[]; readonly chains: readonly ChainIn[] };
  /** Rules that do not depend on attachments, in order. */
  rules(): readonly StaticRule[];
  /** Purposes of elements, and their sets. Records store a set's position: append new sets. */
  readonly purposes: Readonly<Record<string, readonly string[]>>;
  /**
   * By purpose: chains without which its elements do nothing, and the `use` that the kernel counts at least. The count
   * has a chain's rules and what leads there. So a few queries tell an ADD whether the table is whole.
   */
  readonly uses: Readonly<Record<string, Readonly<Record<string, number>>>>;
  /** What earlier releases had, and this one must not have. */
  readonly former?: { readonly chains: readonly string[]; rules(): readonly StaticRule[] };
}

export interface TableDefinition extends nft.TableKey, TablePart {
  readonly comment: string;
  /** Sets that come and go, with no attachment's elements. */
  isTransient?(set: string): boolean;
  /** Its plugin has more to do after a loss than to put elements back, and does it when it finds some missing. */
  readonly isRestoredByPlugin?: boolean;
  /** What one plugin has in it besides, see {@linkcode extendTable}. */
  readonly ownPart?: TablePart;
  /** Elements that exist as long as a shared chain does. */
  chainElementsOf?(chain: string): readonly ChainElement[];
}
type SetIn = Omit<nft.SetIn, "name"> & { readonly name: string };
type ChainIn = Omit<nft.ChainIn, "name"> & { readonly name: string };

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

/**
 * The table with what one plugin has of its own in it, declared in the plugin's folder. The first ADD of the plugin
 * makes it. Other plugins do not know it: its rules are in chains of its own, and its names begin with the plugin's.
 */
export function extendTable(table: TableDefinition, ownPart: TablePart): TableDefinition {
  return {
    ...table,
    ownPart,
    objects() {
      const shared = table.objects();
      const own = ownPart.objects();
      return { sets: [...shared.sets, ...own.sets], chains: [...shared.chains, ...own.chains] };
    },
    rules: () => [...table.rules(), ...ownPart.rules()],
    purposes: { ...table.purposes, ...ownPart.purposes },
    uses: { ...table.uses, ...ownPart.uses },
    former: {
      chains: [table, ownPart].flatMap(({ former }) => former?.chains ?? []),
      rules: () => [table, ownPart].flatMap(({ former }) => former?.rules() ?? []),
    },
  };
}

/** @throws {NetlinkError} `EEXIST` if another process created it meanwhile */
export function createTable(nl: Netlink, table: TableDefinition): void {
  const tx = transaction(nl);
  addTableWithRules(tx, table);
  tx.commit();
}

/** @throws {CniError} if a rule was removed: elements do nothing without rules */
export function checkStaticRules(nl: Netlink, table: TableDefinition): void {
  const missing = findDamage(nl, table);
  if (missing) throw missingRulesError(table, missing);
}

export function missingRulesError(table: TableDefinition, missing: MissingRules): CniError {
  return checkFailedError(`the ruleset's ${describeMissingRules(missing)}`, restoreHint(table));
}

/** @throws {CniError} code 50 if it can neither be created nor repaired */
export function requireTable(nl: Netlink, table: TableDefinition): void {
  try {
    const present = nft.findTable(nl, table);
    if (present) return requireRepairable(nl, table, present);
    requireTakenByKernel(nl, table, () => {
      const tx = transaction(nl);
      addTableWithRules(tx, table);
      return tx;
    });
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    throw new CniError(Code.NotAvailable, "Cannot use nf_tables of this kernel", {
      details: error.message,
      cause: error,
    });
  }
}

function requireRepairable(nl: Netlink, table: TableDefinition, present: nft.Table): void {
  if (isOwnTable(table, present) || looksOurs(listFormerRules(nl, table))) return;
  const [missing] = withoutAdded(nl, table, listMissingRules(nl, table));
  if (!missing) return;
  throw new CniError(
    Code.NotAvailable,
    `Cannot use the ruleset: its ${describeMissingRules(missing)}, and ${
      describeTable(table)
    } was not made by this program`,
    { details: foreignTableHint(table) },
  );
}

/** Not every version of nft(8) brings a comment back. */
export const isOwnTable = ({ comment }: TableDefinition, present: nft.Table): boolean => present.comment === comment;

/** A former rule that looks into a set is nobody else's. */
export const looksOurs = (former: readonly FormerRules[]): boolean => former.some(({ looksIntoSet }) => looksIntoSet);

export const foreignTableHint = ({ comment }: TableDefinition): string =>
  `it has no comment "${comment}"; this program makes one where there is none`;

export const describeTable = ({ family, table }: nft.TableKey): string =>
  `table "${family === NFPROTO_BRIDGE ? "bridge" : "inet"} ${table}"`;

function addTableWithRules(tx: Transaction, definition: TableDefinition): void {
  const { family, table, comment } = definition;
  tx.addTable({ family, name: table, comment });
  addObjects(tx, definition, () => true);
  for (const staticRule of definition.rules()) tx.addRule({ family, table, ...staticRule });
}

export function addObjects(
  tx: Transaction,
  { family, table, objects }: TableDefinition,
  isMissing: (find: typeof nft.findSet | typeof nft.findChain, name: string) => boolean,
): void {
  const { sets, chains } = objects();
  for (const set of sets) if (isMissing(nft.findSet, set.name)) tx.addSet({ family, table, ...set });
  for (const chain of chains) if (isMissing(nft.findChain, chain.name)) tx.addChain({ family, table, ...chain });
}

/** A table of an earlier release works as that release did. The next ADD or restore upgrades it. */
function findDamage(nl: Netlink, table: TableDefinition): MissingRules | undefined {
  const [missing] = listMissingRules(nl, table);
  return missing && !isOfEarlierRelease(nl, table) ? missing : undefined;
}

export function listMissingRules(nl: Netlink, table: TableDefinition): MissingRules[] {
  const missing = listShortChains(nl, table, []);
  // Former rules do not count. To know them, rules must be decoded.
  return missing.length === 0 ? [] : listShortChains(nl, table, table.former?.rules() ?? []);
}

function listShortChains(nl: Netlink, table: TableDefinition, ignored: readonly StaticRule[]): MissingRules[] {
  const isIgnored = ruleMatcher(ignored);
  return [...Map.groupBy(table.rules(), ({ chain }) => chain)].flatMap(([chain, rules]) => {
    const expected = rules.length;
    const present = nft.listLazyRules(nl, table, chain).filter((candidate) => !isIgnored(candidate)).length;
    return present < expected ? [{ chain, present, expected }] : [];
  });
}

/** Leaves out chains of a plugin that has made nothing in the table yet. */
export function withoutAdded<T extends Pick<MissingRules, "chain">>(
  nl: Netlink,
  table: TableDefinition,
  missing: readonly T[],
): readonly T[] {
  const { ownPart } = table;
  if (!ownPart || missing.length === 0) return missing;
  const { sets, chains } = ownPart.objects();
  const hasMade = sets.some(({ name }) => nft.findSet(nl, table, name)) ||
    chains.some(({ name }) => nft.findChain(nl, table, name)) ||
    // Its elements may be in sets of all plugins.
    Object.keys(ownPart.uses).flatMap((purpose) => table.purposes[purpose]!).some((set) => hasElements(nl, table, set));
  return hasMade ? missing : missing.filter(({ chain }) => !chains.some(({ name }) => name === chain));
}

const hasElements = (nl: Netlink, table: TableDefinition, set: string): boolean =>
  (ignoreErrors(["ENOENT"], () => nft.listElements(nl, table, set)) ?? []).length > 0;

/** Chains of an earlier release's table that lack a rule. Numbers tell nothing: rules of others may make them up. */
export function listOutdatedChains(nl: Netlink, table: TableDefinition): Pick<MissingRules, "chain">[] {
  return [...Map.groupBy(table.rules(), ({ chain }) => chain)].flatMap(([chain, rules]) => {
    const present = nft.listLazyRules(nl, table, chain);
    const isWhole = rules.every(({ expressions }) => present.some((found) => isSameRule(found, expressions)));
    return isWhole ? [] : [{ chain }];
  });
}

export interface FormerRules {
  readonly chain: string;
  readonly handles: readonly bigint[];
  /** Whether the chain is a former one that has no other rules. */
  readonly isWholeChain: boolean;
  readonly looksIntoSet: boolean;
}

export function listFormerRules(nl: Netlink, table: TableDefinition): FormerRules[] {
  const { former } = table;
  return [...Map.groupBy(former?.rules() ?? [], ({ chain }) => chain)].flatMap(([chain, rules]) => {
    const present = nft.listLazyRules(nl, table, chain);
    const found = present.filter(ruleMatcher(rules));
    if (found.length === 0) return [];
    return [{
      chain,
      handles: found.map(({ handle }) => handle),
      isWholeChain: former!.chains.includes(chain) && found.length === present.length,
      looksIntoSet: found.some((rule) => rule.expressions().some(({ kind }) => kind === "lookup")),
    }];
  });
}

export const isOfEarlierRelease = (nl: Netlink, table: TableDefinition): boolean =>
  listFormerRules(nl, table).length > 0;

function ruleMatcher(rules: readonly StaticRule[]): (candidate: nft.LazyRule) => boolean {
  return (candidate) =>
    rules.some(({ chain, expressions }) => candidate.chain === chain && isSameRule(candidate, expressions));
}

const restoreHint = ({ table }: TableDefinition): string =>
  `table "${table}"; put back what is missing: cni run restore`;
