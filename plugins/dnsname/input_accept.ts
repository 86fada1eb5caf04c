/**
 * Lets containers' questions in where other firewalls would drop them.
 *
 * A chain of `inet cni` marks packets to port 53 of the server's addresses. One rule in each input chain of other
 * programs accepts the mark. The plugin `firewall` does the same for forwarded packets.
 */
import type { Owner } from "../lib/model/owner.ts";
import { familyOf, hostPrefix } from "../../ffi/address.ts";
import type { Expression } from "../../ffi/nft/expressions.ts";
import * as nft from "../../ffi/nft/objects.ts";
import { dropsEverything, jumpsUnconditionallyTo, normalizedText } from "../../ffi/nft/rule_contents.ts";
import {
  clearMark,
  counter,
  daddrIn,
  dport,
  equals,
  iifnameIs,
  jump,
  l4proto,
  portField,
  rule,
  type RuleStatement,
  setMark,
} from "../../ffi/nft/statements.ts";
import { type Transaction, transaction } from "../../ffi/nft/transaction.ts";
import { NF_INET_LOCAL_IN } from "../../ffi/nft/uapi.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { IPPROTO_TCP, IPPROTO_UDP } from "../../ffi/sys/uapi.ts";
import { missingRulesOf } from "../lib/protocol/check_failed.ts";
import {
  baseChainLister,
  describeForeignChain,
  findChains,
  type ForeignBaseChain,
  type ForeignTable,
  listForeignHookChains,
  listForeignTables,
} from "../lib/ruleset/foreign_tables.ts";
import { FORWARD_MARK, FORWARD_MARK_PRIORITY } from "../lib/ruleset/forward_mark.ts";
import { inetTable } from "../lib/ruleset/inet_table.ts";
import { acceptMarked, acceptsMarked } from "../lib/ruleset/marked_accept.ts";
import { retryOnConflict } from "../lib/ruleset/retry.ts";
import { createTable } from "../lib/ruleset/table.ts";
import { DNS_PORT } from "./protocol.ts";
import type { NameServer } from "./record.ts";

const INPUT_HOOK = { number: NF_INET_LOCAL_IN, names: ["INPUT", "input"] };
/** The chain is in tables of other programs. */
export const INPUT_ACCEPT_CHAIN = "CNI-INPUT";
const ACCEPT_COMMENT = "Questions about names, marked by table inet cni";
const JUMP_COMMENT = "CNI dnsname plugin rules";

const MARK_CHAIN = {
  name: "names_input",
  type: "filter",
  hook: { number: NF_INET_LOCAL_IN, priority: FORWARD_MARK_PRIORITY },
  comment: `Sets bit 0x${FORWARD_MARK.toString(16)} of the mark of questions about names`,
} as const;

interface RestrictiveChain extends ForeignBaseChain {
  readonly foreignTable: ForeignTable;
  readonly isServed: boolean;
}

/** @returns the chains that lacked rules, as text */
export function addInputAccept(nl: Netlink, servers: readonly NameServer[]): string[] {
  return retryOnConflict(() => {
    const generation = nft.getGenerationId(nl);
    const restrictive = listRestrictiveChains(nl, servers);
    if (restrictive.length === 0) return [];
    const missing = listMissing(nl, servers, restrictive);
    if (missing.length === 0) return [];
    // It changes the generation: then the next attempt goes on.
    if (!nft.findTable(nl, inetTable)) createTable(nl, inetTable);
    const tx = transaction(nl);
    addMarkRules(tx, nl, servers);
    for (const chain of restrictive.filter(({ isServed }) => !isServed)) addAcceptRule(tx, nl, chain);
    tx.commit(generation);
    return missing;
  });
}

export function hasInputAccept(nl: Netlink): boolean {
  return nft.findChain(nl, inetTable, MARK_CHAIN.name) !== undefined;
}

export function checkInputAccept(nl: Netlink, servers: readonly NameServer[], owner: Owner): void {
  const [missing] = listMissing(nl, servers, listRestrictiveChains(nl, servers));
  if (missing !== undefined) throw missingRulesOf(owner, `the ruleset has no ${missing}`);
}

/** Removes rules for addresses that no network uses any more, and with the last one all others. */
export function removeInputAccept(nl: Netlink, used: readonly NameServer[]): void {
  retryOnConflict(() => {
    const generation = nft.getGenerationId(nl);
    if (!hasInputAccept(nl)) return;
    const kept = [CLEAR_RULE, ...used.flatMap(markRules)].map(textOf);
    const rules = nft.listLazyRules(nl, inetTable, MARK_CHAIN.name);
    const removed = rules.filter((present) => !kept.includes(normalizedText(present.expressions())));
    const tx = transaction(nl);
    for (const { handle } of removed) tx.deleteRule(inetTable, MARK_CHAIN.name, handle);
    if (rules.length - removed.length <= 1) {
      tx.deleteChain(inetTable, MARK_CHAIN.name);
      removeAcceptRules(tx, nl);
    }
    tx.commit(generation);
  });
}

/** Those of other programs that drop, or may begin to: rules of iptables are opaque. */
function listRestrictiveChains(nl: Netlink, servers: readonly NameServer[]): RestrictiveChain[] {
  const families = [...new Set(servers.map(({ address }) => familyOf(address)))].sort();
  const tables = listForeignTables(nl, families).filter(({ isMissing, hasOwner }) => !isMissing && !hasOwner);
  const named = findChains(nl, tables, INPUT_HOOK.names);
  const listBaseChains = baseChainLister(nl);
  return tables.flatMap((foreignTable) =>
    listForeignHookChains(listBaseChains, foreignTable, INPUT_HOOK, named.get(foreignTable)).flatMap((base) => {
      const rules = nft.listLazyRules(nl, foreignTable, base.chain);
      const isServed = rules.some((present) => jumpsUnconditionallyTo(present, INPUT_ACCEPT_CHAIN)) &&
        findAcceptRules(nl, foreignTable).some(acceptsMarked);
      const mayDrop = foreignTable.isIptables || base.dropsByPolicy || rules.slice(-1).some(dropsEverything);
      return mayDrop || isServed ? [{ ...base, foreignTable, isServed }] : [];
    })
  );
}

function findAcceptRules(nl: Netlink, table: nft.TableKey): nft.LazyRule[] {
  return nft.findChain(nl, table, INPUT_ACCEPT_CHAIN) ? nft.listLazyRules(nl, table, INPUT_ACCEPT_CHAIN) : [];
}

function listMissing(
  nl: Netlink,
  servers: readonly NameServer[],
  restrictive: readonly RestrictiveChain[],
): string[] {
  if (restrictive.length === 0) return [];
  const present = listMarkTexts(nl);
  const unmarked = servers.filter((server) =>
    markRules(server).some((expressions) => !present.has(textOf(expressions)))
  );
  return [
    ...unmarked.map(({ address, device }) => `mark for questions to ${address} from link "${device}"`),
    ...restrictive.filter(({ isServed }) => !isServed).map((chain) =>
      `accept rule of ${describeForeignChain(chain.foreignTable, chain)}`
    ),
  ];
}

function listMarkTexts(nl: Netlink): ReadonlySet<string> {
  if (!hasInputAccept(nl)) return new Set();
  const rules = nft.listLazyRules(nl, inetTable, MARK_CHAIN.name);
  return new Set(rules.map((present) => normalizedText(present.expressions())));
}

/** A bit from elsewhere would open every firewall. */
const CLEAR_RULE: RuleStatement = clearMark(FORWARD_MARK);

const markRules = ({ address, device }: NameServer): RuleStatement[] =>
  [IPPROTO_UDP, IPPROTO_TCP].map((protocol) =>
    rule(
      iifnameIs(device),
      daddrIn(hostPrefix(address)),
      equals(l4proto(), Uint8Array.of(protocol)),
      equals(dport(), portField(DNS_PORT)),
      setMark(FORWARD_MARK),
    )
  );

const textOf = (expressions: RuleStatement): string => normalizedText(expressions as Expression[]);

function addMarkRules(tx: Transaction, nl: Netlink, servers: readonly NameServer[]): void {
  const { family, table } = inetTable;
  const present = listMarkTexts(nl);
  if (!hasInputAccept(nl)) tx.addChain({ family, table, ...MARK_CHAIN });
  for (const expressions of [CLEAR_RULE, ...servers.flatMap(markRules)]) {
    if (!present.has(textOf(expressions))) tx.addRule({ family, table, chain: MARK_CHAIN.name, expressions });
  }
}

function addAcceptRule(tx: Transaction, nl: Netlink, { foreignTable, chain }: RestrictiveChain): void {
  const { family, table, isIptables } = foreignTable;
  if (!nft.findChain(nl, foreignTable, INPUT_ACCEPT_CHAIN)) tx.addChain({ family, table, name: INPUT_ACCEPT_CHAIN });
  if (!findAcceptRules(nl, foreignTable).some(acceptsMarked)) {
    tx.addRule({
      family,
      table,
      chain: INPUT_ACCEPT_CHAIN,
      expressions: acceptMarked(isIptables),
      comment: ACCEPT_COMMENT,
    });
  }
  const rules = nft.listLazyRules(nl, foreignTable, chain);
  if (rules.some((present) => jumpsUnconditionallyTo(present, INPUT_ACCEPT_CHAIN))) return;
  const expressions = [...isIptables ? counter() : [], ...jump(INPUT_ACCEPT_CHAIN)];
  tx.insertRule({ family, table, chain, expressions, comment: JUMP_COMMENT });
}

function removeAcceptRules(tx: Transaction, nl: Netlink): void {
  const tables = listForeignTables(nl, [4, 6]).filter(({ isMissing }) => !isMissing);
  const listBaseChains = baseChainLister(nl);
  for (const [foreignTable, chains] of findChains(nl, tables, [INPUT_ACCEPT_CHAIN, ...INPUT_HOOK.names])) {
    const acceptChain = chains.get(INPUT_ACCEPT_CHAIN);
    if (!acceptChain) continue;
    const own = nft.listLazyRules(nl, foreignTable, INPUT_ACCEPT_CHAIN);
    let references = own.length;
    for (const { chain } of listForeignHookChains(listBaseChains, foreignTable, INPUT_HOOK, chains)) {
      const jumps = nft.listLazyRules(nl, foreignTable, chain).filter((present) =>
        jumpsUnconditionallyTo(present, INPUT_ACCEPT_CHAIN)
      );
      for (const { handle } of jumps) tx.deleteRule(foreignTable, chain, handle);
      references += jumps.length;
    }
    // Others may have put rules there, or jump there.
    const isOurs = own.every(acceptsMarked) && acceptChain.use === references;
    if (isOurs) tx.deleteChain(foreignTable, INPUT_ACCEPT_CHAIN);
    else {for (const present of own.filter(acceptsMarked)) {
        tx.deleteRule(foreignTable, INPUT_ACCEPT_CHAIN, present.handle);
      }}
  }
}
