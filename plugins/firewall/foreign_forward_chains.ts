/**
 * Base chains of other tables that decide what this host forwards. Whatever one of them drops stays dropped, whoever else accepts it.
 *
 * @module
 */
import {
  counter,
  ctStateEstablishedRelated,
  ctStatusDnat,
  type RuleStatement,
  xtCtstateDnat,
  xtCtstateEstablishedRelated,
} from "../../ffi/nft/statements.ts";
import * as nft from "../../ffi/nft/objects.ts";
import {
  NF_ACCEPT,
  NF_DROP,
  NF_INET_FORWARD,
  NF_IP_PRI_FILTER,
  NFPROTO_INET,
  NFPROTO_IPV4,
  NFPROTO_IPV6,
} from "../../ffi/nft/uapi.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { inetTable } from "../lib/ruleset/inet_table.ts";

/** A table of others with such chains. */
export interface ForeignTable extends nft.TableKey {
  readonly forwardChains: readonly ForwardChain[];
  /** The table is one of iptables', which reads nothing but what it could have written itself. */
  readonly isIptables: boolean;
  /** A running program has the table to itself. */
  readonly hasOwner: boolean;
}

/** A chain that sees what is forwarded. */
export interface ForwardChain {
  readonly chain: string;
  /** It drops what no rule of it decides. */
  readonly dropsByPolicy: boolean;
  /** There is the table but not the chain, which iptables makes when it is first needed. */
  readonly isMissing?: true;
}

/** The tables of iptables that have a chain FORWARD. */
const IPTABLES_TABLES = ["filter", "mangle", "security"];
const FORWARD = "FORWARD";
/** A program that makes its rules anew from its own settings, and is told over D-Bus. */
const FIREWALLD_TABLE = "firewalld";
// linux/netfilter/nf_tables.h
const NFT_TABLE_F_DORMANT = 1;
const NFT_TABLE_F_OWNER = 2;

/**
 * All that there are, but for firewalld's.
 *
 * There may be thousands of chains, most of them where iptables is: there they are asked for by name.
 *
 * @throws {NetlinkError}
 */
export function listForeignTables(nl: Netlink): ForeignTable[] {
  const foreignTables: ForeignTable[] = [];
  const nonIptablesTables = new Map<string, nft.Table>();
  for (const table of nft.listTables(nl)) {
    const { family, name = "", flags = 0 } = table;
    if (!isForeign(family, name) || flags & NFT_TABLE_F_DORMANT) continue;
    if (!isIptablesTable(family, name)) nonIptablesTables.set(`${family} ${name}`, table);
    else foreignTables.push(toForeignTable(table, [nft.findChain(nl, { family, table: name }, FORWARD)]));
  }
  for (const family of new Set([...nonIptablesTables.values()].map((table) => table.family))) {
    const chains = nft.listBaseChains(nl, family);
    for (const table of nonIptablesTables.values()) {
      if (table.family === family) {
        foreignTables.push(toForeignTable(table, chains.filter((chain) => chain.table === table.name)));
      }
    }
  }
  return foreignTables.filter(({ forwardChains }) => forwardChains.length > 0);
}

function isForeign(family: number, table: string): boolean {
  return [NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_INET].includes(family) && table !== FIREWALLD_TABLE &&
    !(family === inetTable.family && table === inetTable.table);
}

const isIptablesTable = (family: number, table: string): boolean =>
  family !== NFPROTO_INET && IPTABLES_TABLES.includes(table);

function toForeignTable(
  { family, name = "", flags = 0 }: nft.Table,
  chains: readonly (nft.Chain | undefined)[],
): ForeignTable {
  const isIptables = isIptablesTable(family, name);
  const forwardChains = chains.flatMap((chain): ForwardChain[] => {
    if (!chain) return name === "filter" ? [{ chain: FORWARD, dropsByPolicy: false, isMissing: true }] : [];
    if (chain.hook?.number !== NF_INET_FORWARD) return [];
    return [{ chain: chain.name ?? "", dropsByPolicy: chain.policy === NF_DROP }];
  });
  return { family, table: name, forwardChains, isIptables, hasOwner: (flags & NFT_TABLE_F_OWNER) !== 0 };
}

/** The chain as iptables makes it. */
export function iptablesForwardChain({ family, table }: ForeignTable, { chain }: ForwardChain): nft.ChainIn {
  const hook = { number: NF_INET_FORWARD, priority: NF_IP_PRI_FILTER };
  return { family, table, name: chain, type: "filter", hook, policy: NF_ACCEPT };
}

/** True if packets of this family pass the table. */
export function seesFamily(table: ForeignTable, family: 4 | 6): boolean {
  return table.family === NFPROTO_INET || table.family === (family === 4 ? NFPROTO_IPV4 : NFPROTO_IPV6);
}

/** Matches packets of established connections, in the form that the table's program can read back. */
export function establishedMatch(table: ForeignTable): RuleStatement {
  return table.isIptables ? [...xtCtstateEstablishedRelated(), ...counter()] : ctStateEstablishedRelated();
}

/**
 * Matches connections to published ports, whichever program published them.
 *
 * Not in one rule with {@linkcode establishedMatch}: iptables could say both at once, but nft(8) shows half of that, and loads what it shows.
 */
export function dnatMatch(table: ForeignTable): RuleStatement {
  return table.isIptables ? [...xtCtstateDnat(), ...counter()] : ctStatusDnat();
}

/** What iptables puts into every rule. */
export function counterFor(table: ForeignTable): RuleStatement {
  return table.isIptables ? counter() : [];
}

/** `chain "FORWARD" of table "ip filter"` */
export function describeForwardChain({ family, table }: ForeignTable, { chain }: ForwardChain): string {
  const families: Record<number, string> = { [NFPROTO_INET]: "inet", [NFPROTO_IPV4]: "ip", [NFPROTO_IPV6]: "ip6" };
  return `chain "${chain}" of table "${families[family]} ${table}"`;
}
