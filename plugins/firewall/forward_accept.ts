/**
 * Rules that accept a container's packets in foreign tables that would drop them. They stand in a chain that has the reference plugin's name
 * and its form, so that both can work on one node.
 *
 * Per address three rules, as iptables has no words for sets; each has its owner as comment. Rules without one are the reference's, which
 * lets nobody in who calls a published port.
 *
 * @module
 */
import { checkFailedError } from "../lib/protocol/check_failed.ts";
import { familyOf, type Ip, ipBytes } from "../../ffi/address.ts";
import type { ExpressionIn } from "../../ffi/nft/expressions.ts";
import { accept, daddr, equals, jump, saddr, type Selector } from "../../ffi/nft/statements.ts";
import * as nft from "../../ffi/nft/objects.ts";
import { type Transaction, transaction } from "../../ffi/nft/transaction.ts";
import { NFPROTO_INET } from "../../ffi/nft/uapi.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { retryOnConflict } from "../lib/ruleset/retry.ts";
import { formatOwner, type Owner, ownerRestoreHint, parseOwner } from "../lib/protocol/owner.ts";
import {
  containsText,
  dropsEverything,
  jumpsUnconditionallyTo,
  normalizedText,
  ruleComment,
  unconditionalJumpTarget,
} from "../../ffi/nft/rule_contents.ts";
import {
  counterFor,
  describeForwardChain,
  dnatMatch,
  establishedMatch,
  type ForeignTable,
  type ForwardChain,
  iptablesForwardChain,
  listForeignTables,
  seesFamily,
} from "./foreign_forward_chains.ts";

const FORWARD_CHAIN = "CNI-FORWARD";

/** The reference looks for this very rule. */
const JUMP_COMMENT = "CNI firewall plugin rules";

/** Differs from the reference's comment: the reference makes the chain itself, ours is the administrator's even when it is empty. */
const ADMIN_COMMENT = "CNI admin overrides come first";
const REFERENCE_ADMIN_COMMENT = "CNI firewall plugin admin overrides";

/** What the reference leaves behind for its `ingressPolicy`, in an order in which it can be removed. */
const REFERENCE_CHAINS = ["CNI-ISOLATION-STAGE-1", "CNI-ISOLATION-STAGE-2"];

/** An attachment and the addresses whose packets are accepted. */
export interface Endpoint {
  readonly owner: Owner;
  readonly addresses: readonly Ip[];
}

/** A foreign table that drops forwarded packets, as it was read. */
interface TableState {
  readonly foreignTable: ForeignTable;
  /** The forward chains that drop packets or jump to ours already, with their rules. */
  readonly forwardChains: readonly (ForwardChain & { readonly rules: readonly nft.LazyRule[] })[];
  /** The rules of our chain; undefined if there is none. */
  readonly chainRules: readonly nft.LazyRule[] | undefined;
  readonly hasAdminChain: boolean;
}

/**
 * Adds accept rules to every foreign table that drops forwarded packets or has the administrator's chain.
 *
 * @param listEndpoints all that have the plugin, for a table that did not drop packets when they were attached
 * @returns the forward chains that lacked rules, in words
 * @throws {NetlinkError}
 */
export function addForwardAccept(
  nl: Netlink,
  endpoint: Endpoint,
  adminChain: string,
  listEndpoints: () => readonly Endpoint[],
  log: (message: string) => void,
): string[] {
  return retryOnConflict(() => {
    const generation = nft.getGenerationId(nl);
    const tx = transaction(nl);
    const added: string[] = [];
    for (const state of listRestrictiveTables(nl, endpoint, adminChain)) {
      const { foreignTable, forwardChains, chainRules } = state;
      if (foreignTable.hasOwner) {
        log(
          `Cannot add to ${
            describeForwardChain(foreignTable, forwardChains[0]!)
          }, which drops: the table is owned by another program`,
        );
        continue;
      }
      for (const fault of listMissingAccept(state, endpoint, adminChain)) added.push(`accept rules of ${fault.chain}`);
      addAcceptRules(tx, state, adminChain, chainRules ? [endpoint] : [...listEndpoints(), endpoint]);
    }
    if (!tx.isEmpty) tx.commit(generation);
    return added;
  });
}

function listRestrictiveTables(nl: Netlink, { addresses }: Endpoint, adminChain: string): TableState[] {
  const families = [...new Set(addresses.map(familyOf))];
  return listForeignTables(nl).filter((foreignTable) => families.some((family) => seesFamily(foreignTable, family)))
    .flatMap((foreignTable) => {
      const chainRules = nft.findChain(nl, foreignTable, FORWARD_CHAIN) &&
        nft.listLazyRules(nl, foreignTable, FORWARD_CHAIN);
      const hasAdminChain = nft.findChain(nl, foreignTable, adminChain) !== undefined;
      const forwardChains = foreignTable.forwardChains.map((base) => ({
        ...base,
        rules: nft.listLazyRules(nl, foreignTable, base.chain),
      }))
        .filter(({ dropsByPolicy, rules }) =>
          dropsByPolicy || hasAdminChain || rules.slice(-1).some(dropsEverything) ||
          chainRules && rules.some((rule) => jumpsUnconditionallyTo(rule, FORWARD_CHAIN))
        );
      return forwardChains.length > 0 ? [{ foreignTable, forwardChains, chainRules, hasAdminChain }] : [];
    });
}

function addAcceptRules(tx: Transaction, state: TableState, adminChain: string, endpoints: readonly Endpoint[]): void {
  const { foreignTable, forwardChains, chainRules = [], hasAdminChain } = state;
  const { family, table } = foreignTable;
  if (!state.chainRules) tx.addChain({ family, table, name: FORWARD_CHAIN });
  const insertJump = (chain: string, to: string, comment: string) =>
    tx.insertRule({ family, table, chain, expressions: [...counterFor(foreignTable), ...jump(to)], comment });
  for (const forwardChain of forwardChains) {
    if (forwardChain.isMissing) tx.addChain(iptablesForwardChain(foreignTable, forwardChain));
    if (!forwardChain.rules.some((rule) => jumpsUnconditionallyTo(rule, FORWARD_CHAIN))) {
      insertJump(forwardChain.chain, FORWARD_CHAIN, JUMP_COMMENT);
    }
  }
  if (hasAdminChain && !chainRules.some((rule) => jumpsUnconditionallyTo(rule, adminChain))) {
    insertJump(FORWARD_CHAIN, adminChain, ADMIN_COMMENT);
  }
  const added = new Set<string>();
  for (const endpoint of endpoints) {
    for (const { key, expressions, comment } of missingAcceptRules(foreignTable, chainRules, endpoint)) {
      if (added.has(key)) continue;
      added.add(key);
      tx.addRule({ family, table, chain: FORWARD_CHAIN, expressions, comment });
    }
  }
}

interface AcceptRule {
  readonly key: string;
  readonly expressions: readonly ExpressionIn[];
  readonly comment: string;
}

function missingAcceptRules(
  foreignTable: ForeignTable,
  chainRules: readonly nft.LazyRule[],
  { owner, addresses }: Endpoint,
): AcceptRule[] {
  const comment = formatOwner(owner);
  const ownedRules = chainRules.filter((rule) => containsText(rule, comment) && ruleComment(rule) === comment);
  const present = new Set(ownedRules.map((rule) => normalizedText(rule.expressions())));
  return addresses.filter((address) => seesFamily(foreignTable, familyOf(address)))
    .flatMap((address) => acceptRulesFor(foreignTable, address))
    .filter(({ text }) => !present.has(text))
    .map(({ expressions, text }) => ({ key: `${comment} ${text}`, expressions, comment }));
}

/** Established connections, connections to published ports, and all that the container sends; the reference has the first and the third. */
function acceptRulesFor(foreignTable: ForeignTable, address: Ip): { expressions: ExpressionIn[]; text: string }[] {
  const family = familyOf(address);
  const matchAddress = ({ family, ...rest }: Selector) =>
    equals(foreignTable.family === NFPROTO_INET ? { family, ...rest } as Selector : rest, ipBytes(address));
  return [
    [...matchAddress(daddr(family)), ...establishedMatch(foreignTable), ...accept()],
    [...matchAddress(daddr(family)), ...dnatMatch(foreignTable), ...accept()],
    [...matchAddress(saddr(family)), ...counterFor(foreignTable), ...accept()],
  ].map((expressions) => ({ expressions, text: normalizedText(expressions as Parameters<typeof normalizedText>[0]) }));
}

/** The rules to remove. */
export interface RemovalFilter {
  /** A text that all their comments contain. */
  readonly commented: string;
  isOwned(owner: Owner): boolean;
  /** Addresses whose rules without an owner are removed too. */
  readonly addresses?: readonly Ip[];
}

/** Removes rules from all foreign tables, and with the last rule the chain and the jumps to it. @throws {NetlinkError} */
export function removeForwardAccept(nl: Netlink, removal: RemovalFilter): void {
  retryOnConflict(() => {
    const generation = nft.getGenerationId(nl);
    const tx = transaction(nl);
    for (const foreignTable of listForeignTables(nl)) {
      const chainRules = nft.listLazyRules(nl, foreignTable, FORWARD_CHAIN);
      const removed = new Set(chainRules.filter((rule) => matchesRemoval(foreignTable, rule, removal)));
      if (removed.size === 0) continue;
      for (const { handle } of removed) tx.deleteRule(foreignTable, FORWARD_CHAIN, handle);
      const kept = chainRules.filter((rule) => !removed.has(rule));
      if (kept.every(isAdminJump)) removeForwardChain(tx, nl, foreignTable, chainRules.length, kept);
    }
    if (!tx.isEmpty) tx.commit(generation);
  });
}

function matchesRemoval(
  foreignTable: ForeignTable,
  rule: nft.LazyRule,
  { commented, isOwned, addresses = [] }: RemovalFilter,
): boolean {
  if (containsText(rule, commented)) {
    const owner = parseOwner(ruleComment(rule));
    if (owner && isOwned(owner)) return true;
  }
  if (addresses.length === 0 || ruleComment(rule) !== "") return false;
  const text = normalizedText(rule.expressions());
  return addresses.some((address) =>
    acceptRulesFor(foreignTable, address).some((acceptRule) => acceptRule.text === text)
  );
}

function isAdminJump(rule: nft.LazyRule): boolean {
  return [ADMIN_COMMENT, REFERENCE_ADMIN_COMMENT].includes(ruleComment(rule)) &&
    unconditionalJumpTarget(rule) !== undefined;
}

/** Removes the chain, the jumps to it and the reference's other chains, unless other rules jump there as well. */
function removeForwardChain(
  tx: Transaction,
  nl: Netlink,
  foreignTable: ForeignTable,
  size: number,
  adminJumps: readonly nft.LazyRule[],
): void {
  const baseRules = foreignTable.forwardChains.flatMap(({ chain }) =>
    nft.listLazyRules(nl, foreignTable, chain).map((rule) => ({ ...rule, chain }))
  );
  const removeChain = (name: string, size: number): boolean => {
    const jumps = baseRules.filter((rule) => jumpsUnconditionallyTo(rule, name));
    if (nft.findChain(nl, foreignTable, name)?.use !== size + jumps.length) return false;
    for (const { handle, chain } of jumps) tx.deleteRule(foreignTable, chain, handle);
    tx.deleteChain(foreignTable, name);
    return true;
  };
  if (!removeChain(FORWARD_CHAIN, size)) return;
  for (const rule of adminJumps) {
    const adminChain = unconditionalJumpTarget(rule);
    // The reference made it; it is empty and only this rule jumps there.
    if (
      ruleComment(rule) === REFERENCE_ADMIN_COMMENT && adminChain !== undefined &&
      nft.findChain(nl, foreignTable, adminChain)?.use === 1
    ) {
      tx.deleteChain(foreignTable, adminChain);
    }
  }
  const [stage1Chain, stage2Chain] = REFERENCE_CHAINS as [string, string];
  const stage1 = nft.listLazyRules(nl, foreignTable, stage1Chain);
  const stage2References = stage1.filter((rule) => containsText(rule, stage2Chain)).length;
  const stage2 = nft.findChain(nl, foreignTable, stage2Chain);
  const isUnused = stage2 && stage2.use === nft.listLazyRules(nl, foreignTable, stage2Chain).length + stage2References;
  if (isUnused && removeChain(stage1Chain, stage1.length)) tx.deleteChain(foreignTable, stage2Chain);
}

/** @throws {CniError} if what {@linkcode addForwardAccept} made is not there any more */
export function checkForwardAccept(nl: Netlink, endpoint: Endpoint, adminChain: string): void {
  for (const state of listRestrictiveTables(nl, endpoint, adminChain)) {
    const [fault] = state.foreignTable.hasOwner ? [] : listMissingAccept(state, endpoint, adminChain);
    if (!fault) continue;
    throw checkFailedError(`${fault.chain} ${fault.problem}`, ownerRestoreHint(endpoint.owner));
  }
}

/** The forward chains of a table that do not accept a container's packets, and why. */
function listMissingAccept(
  { foreignTable, forwardChains, chainRules = [], hasAdminChain }: TableState,
  endpoint: Endpoint,
  adminChain: string,
): { readonly chain: string; readonly problem: string }[] {
  return forwardChains.flatMap((forwardChain) => {
    const problem = !forwardChain.rules.some((rule) => jumpsUnconditionallyTo(rule, FORWARD_CHAIN))
      ? `does not jump to chain "${FORWARD_CHAIN}"`
      : hasAdminChain && !chainRules.some((rule) => jumpsUnconditionallyTo(rule, adminChain))
      ? `does not jump to chain "${adminChain}"`
      : missingAcceptRules(foreignTable, chainRules, endpoint).length > 0
      ? "does not accept packets of the container"
      : undefined;
    return problem ? [{ chain: describeForwardChain(foreignTable, forwardChain), problem }] : [];
  });
}
