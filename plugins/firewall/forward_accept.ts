/**
 * Accepts packets of containers in foreign tables that would drop them. The chain has the reference's name, so both can
 * work on one node.
 *
 * One rule accepts what `table inet cni` has marked (plugins/lib/ruleset/forward_mark.ts). iptables' tables always get
 * it, first: they may start dropping at any time, and their rules are opaque. Only rules of Kubernetes come before it:
 * they refuse single calls, and what refuses all stands elsewhere. Native chains get it if their policy or last rule
 * drops; their other drops are an administrator's intent.
 */
import { missingRulesOf } from "../lib/protocol/check_failed.ts";
import type { Owner } from "../lib/model/owner.ts";
import { familyOf, type Ip } from "../../ffi/address.ts";
import { counter, jump } from "../../ffi/nft/statements.ts";
import * as nft from "../../ffi/nft/objects.ts";
import { type Transaction, transaction } from "../../ffi/nft/transaction.ts";
import { NFPROTO_IPV4 } from "../../ffi/nft/uapi.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { EARLY_CHAIN, earlyRule, FORWARD_MARK_PRIORITY } from "../lib/ruleset/forward_mark.ts";
import { inetTable } from "../lib/ruleset/inet_table.ts";
import { requireTakenByKernel } from "../lib/ruleset/kernel_support.ts";
import { acceptMarked, acceptsMarked } from "../lib/ruleset/marked_accept.ts";
import { retryOnConflict } from "../lib/ruleset/retry.ts";
import { whileUnchanged } from "../lib/protocol/shared_reads.ts";
import { dropsEverything, jumpsUnconditionallyTo } from "../../ffi/nft/rule_contents.ts";
import {
  baseChainLister,
  describeForeignChain,
  findChains,
  type ForeignTable,
  listForeignTables,
} from "../lib/ruleset/foreign_tables.ts";
import {
  type ForwardChain,
  IPTABLES_FORWARD_CHAINS,
  iptablesForwardChain,
  listForwardChains,
} from "./foreign_forward_chains.ts";
import {
  ACCEPT_COMMENT,
  ADMIN_COMMENT,
  FORWARD_CHAIN,
  isForwardJump,
  isKubernetesJump,
  JUMP_COMMENT,
  MADE_ADMIN_COMMENT,
  MADE_COMMENT,
} from "./cni_forward_chain.ts";

interface TableState {
  readonly foreignTable: ForeignTable;
  /** The chains that must accept packets. */
  readonly forwardChains: readonly (ForwardChain & { readonly rules: readonly nft.LazyRule[] })[];
  readonly chainRules: readonly nft.LazyRule[] | undefined;
  readonly adminsChain: nft.Chain | undefined;
}

interface Fault {
  readonly chain: string;
  readonly problem: string;
}

/** @returns the forward chains that lacked rules, as text */
export function addForwardAccept(
  nl: Netlink,
  addresses: readonly Ip[],
  adminChain: string,
  log: (message: string) => void,
): string[] {
  const families = addressFamilies(addresses);
  // All containers share the rules.
  return whileUnchanged(
    nl,
    `accept rules ${families} ${adminChain}`,
    () => retryOnConflict(() => addMissingRules(nl, families, adminChain, log)),
  );
}

function addMissingRules(
  nl: Netlink,
  families: readonly (4 | 6)[],
  adminChain: string,
  log: (message: string) => void,
): string[] {
  const generation = nft.getGenerationId(nl);
  const states = listRestrictiveTables(nl, families, adminChain);
  const hasEarlyChain = marksEarly(nl, states);
  for (const { foreignTable, forwardChains } of states.filter(({ foreignTable }) => foreignTable.hasOwner)) {
    const chain = describeForeignChain(foreignTable, forwardChains[0]!);
    log(`Cannot accept packets of containers in ${chain}: the table is owned by another program`);
  }
  const add = (changed: readonly TableState[]): string[] => {
    const faults = changed.map((state) => ({ state, faults: listFaults(state, adminChain, hasEarlyChain) }))
      .filter(({ faults }) => faults.length > 0);
    const tx = transaction(nl);
    if (!hasEarlyChain && changed.some(needsEarlyMark)) addEarlyChain(tx, nl);
    for (const { state } of faults) addAcceptRule(tx, state, adminChain);
    tx.commit(generation);
    return faults.flatMap(({ faults }) => faults).map(({ chain }) => `accept rules of ${chain}`);
  };
  const writable = states.filter(({ foreignTable }) => !foreignTable.hasOwner);
  try {
    return add(writable);
  } catch (error) {
    // All tables and chains of this generation exist, so the kernel lacks a module.
    if (!(error instanceof NetlinkError) || error.code !== "ENOENT" || takesIptablesRules(nl)) throw error;
    log(IPTABLES_RULES_REFUSED);
    return add(writable.filter(({ foreignTable }) => !foreignTable.isIptables));
  }
}

export function addressFamilies(addresses: readonly Ip[]): readonly (4 | 6)[] {
  return [...new Set(addresses.map(familyOf))].sort();
}

export const IPTABLES_RULES_REFUSED =
  "Cannot accept packets of containers in the tables of iptables: the kernel has no module nft_compat or xt_mark; " +
  "what iptables drops stays dropped";

/** Whether the kernel has accepted such rules before. */
export function hasIptablesRules(nl: Netlink): boolean {
  const tables = listForeignTables(nl, [4, 6]).filter(({ isIptables, isMissing }) => isIptables && !isMissing);
  return [...findChains(nl, tables, [FORWARD_CHAIN]).values()].some((chains) => chains.size > 0);
}

/** Whether the kernel takes iptables' rules; changes nothing. */
export function takesIptablesRules(nl: Netlink): boolean {
  // Never committed, so the name cannot clash.
  const probe = { family: NFPROTO_IPV4, table: "cni-probe" };
  try {
    requireTakenByKernel(nl, "rules of iptables", () => {
      const tx = transaction(nl);
      tx.addTable({ family: probe.family, name: probe.table }).addChain({ ...probe, name: FORWARD_CHAIN });
      return tx.addRule({ ...probe, chain: FORWARD_CHAIN, expressions: acceptMarked(true) });
    });
    return true;
  } catch (error) {
    if (error instanceof NetlinkError && error.code === "ENOENT") return false;
    throw error;
  }
}

/** Whether ADD puts its rules into this chain of another table. */
export function isServedChain(nl: Netlink, { family, table, name }: ForwardChainKey, adminChain: string): boolean {
  return listRestrictiveTables(nl, [4, 6], adminChain).some(({ foreignTable, forwardChains }) =>
    !foreignTable.hasOwner && foreignTable.family === family && foreignTable.table === table &&
    forwardChains.some(({ chain }) => chain === name)
  );
}

interface ForwardChainKey extends nft.TableKey {
  readonly name?: string | undefined;
}

function listRestrictiveTables(nl: Netlink, families: readonly (4 | 6)[], adminChain: string): TableState[] {
  const tables = listForeignTables(nl, families);
  const present = tables.filter(({ isMissing }) => !isMissing);
  const chains = findChains(nl, present, [FORWARD_CHAIN, adminChain, ...IPTABLES_FORWARD_CHAINS]);
  const listBaseChains = baseChainLister(nl);
  return tables.flatMap((foreignTable) => {
    const named = chains.get(foreignTable);
    const chainRules = named?.has(FORWARD_CHAIN) ? nft.listLazyRules(nl, foreignTable, FORWARD_CHAIN) : undefined;
    const adminsChain = named?.get(adminChain);
    const forwardChains = listForwardChains(listBaseChains, foreignTable, named).map((base) => ({
      ...base,
      rules: base.isMissing ? [] : nft.listLazyRules(nl, foreignTable, base.chain),
    }))
      .filter(({ isIptablesFilter, dropsByPolicy, rules }) =>
        isIptablesFilter || dropsByPolicy || adminsChain || rules.slice(-1).some(dropsEverything) ||
        chainRules && rules.some(isForwardJump)
      );
    return forwardChains.length > 0 ? [{ foreignTable, forwardChains, chainRules, adminsChain }] : [];
  });
}

const needsEarlyMark = ({ forwardChains }: TableState): boolean =>
  forwardChains.some(({ priority }) => priority <= FORWARD_MARK_PRIORITY);

const marksEarly = (nl: Netlink, states: readonly TableState[]): boolean =>
  !states.some(needsEarlyMark) || nft.findChain(nl, inetTable, EARLY_CHAIN.name)?.use === 1;

function addEarlyChain(tx: Transaction, nl: Netlink): void {
  const { family, table } = inetTable;
  if (!nft.findChain(nl, inetTable, EARLY_CHAIN.name)) tx.addChain({ family, table, ...EARLY_CHAIN });
  tx.addRule({ family, table, chain: EARLY_CHAIN.name, expressions: earlyRule() });
}

/** Administrators expect their chain in iptables' filter table. */
const makesAdminChain = ({ forwardChains, adminsChain }: TableState): boolean =>
  !adminsChain && forwardChains.some(({ isIptablesFilter }) => isIptablesFilter);

function addAcceptRule(tx: Transaction, state: TableState, adminChain: string): void {
  const { foreignTable, forwardChains, chainRules = [], adminsChain } = state;
  const { family, table, isIptables } = foreignTable;
  if (foreignTable.isMissing) tx.addTable({ family, name: table, comment: MADE_COMMENT });
  if (!state.chainRules) tx.addChain({ family, table, name: FORWARD_CHAIN });
  const isMade = makesAdminChain(state);
  if (isMade) tx.addChain({ family, table, name: adminChain, comment: MADE_COMMENT });
  const jumpRule = (chain: string, to: string, comment: string) => {
    const expressions = [...isIptables ? counter() : [], ...jump(to)];
    return { family, table, chain, expressions, comment };
  };
  for (const { chain, isMissing, rules } of forwardChains) {
    if (isMissing) tx.addChain(iptablesForwardChain(foreignTable, chain));
    const present = rules.find(isForwardJump);
    const before = rules.findLast(isKubernetesJump);
    if (present && !jumpsTooEarly(rules)) continue;
    if (present) tx.deleteRule(foreignTable, chain, present.handle);
    if (before) tx.addRule({ ...jumpRule(chain, FORWARD_CHAIN, JUMP_COMMENT), position: before.handle });
    else tx.insertRule(jumpRule(chain, FORWARD_CHAIN, JUMP_COMMENT));
  }
  if (!chainRules.some(acceptsMarked)) {
    const expressions = acceptMarked(isIptables);
    tx.addRule({ family, table, chain: FORWARD_CHAIN, expressions, comment: ACCEPT_COMMENT });
  }
  if (lacksAdminJump(state, adminChain)) {
    const comment = isMade || adminsChain?.comment === MADE_COMMENT ? MADE_ADMIN_COMMENT : ADMIN_COMMENT;
    tx.insertRule(jumpRule(FORWARD_CHAIN, adminChain, comment));
  }
}

const jumpsTooEarly = (rules: readonly nft.LazyRule[]): boolean =>
  rules.findIndex(isForwardJump) < rules.findLastIndex(isKubernetesJump);

const lacksAdminJump = (state: TableState, adminChain: string): boolean =>
  (state.adminsChain !== undefined || makesAdminChain(state)) &&
  !(state.chainRules ?? []).some((rule) => jumpsUnconditionallyTo(rule, adminChain));

export function checkForwardAccept(nl: Netlink, addresses: readonly Ip[], adminChain: string, owner: Owner): void {
  const states = listRestrictiveTables(nl, addressFamilies(addresses), adminChain);
  const hasEarlyChain = marksEarly(nl, states);
  for (const state of states.filter(({ foreignTable }) => !foreignTable.hasOwner)) {
    const [fault] = listFaults(state, adminChain, hasEarlyChain);
    if (!fault || state.foreignTable.isIptables && !takesIptablesRules(nl)) continue;
    throw missingRulesOf(owner, `${fault.chain} ${fault.problem}`);
  }
}

function listFaults(state: TableState, adminChain: string, hasEarlyChain: boolean): Fault[] {
  return state.forwardChains.flatMap((forwardChain) => {
    const problem = findProblem(state, forwardChain, adminChain, hasEarlyChain);
    return problem ? [{ chain: describeForeignChain(state.foreignTable, forwardChain), problem }] : [];
  });
}

function findProblem(
  state: TableState,
  { rules, priority }: TableState["forwardChains"][number],
  adminChain: string,
  hasEarlyChain: boolean,
): string | undefined {
  if (!rules.some(isForwardJump)) return `does not jump to chain "${FORWARD_CHAIN}"`;
  if (jumpsTooEarly(rules)) return `jumps to chain "${FORWARD_CHAIN}" before the rules of Kubernetes`;
  if (lacksAdminJump(state, adminChain)) return `does not jump to chain "${adminChain}"`;
  if (!state.chainRules?.some(acceptsMarked)) return "does not accept packets of containers";
  if (!hasEarlyChain && priority <= FORWARD_MARK_PRIORITY) return "runs before packets of containers are marked";
  return undefined;
}
