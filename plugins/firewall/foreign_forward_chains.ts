/** Forward chains of other tables. A packet that one of them drops stays dropped, whatever others accept. */
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

export interface ForeignTable extends nft.TableKey {
  /** iptables reads only rules that it could have written. */
  readonly isIptables: boolean;
  /** Only the owner program can change the table. */
  readonly hasOwner: boolean;
  /** iptables creates it on demand. */
  readonly isMissing: boolean;
  readonly comment: string | undefined;
}

export interface ForwardChain {
  readonly chain: string;
  readonly priority: number;
  readonly dropsByPolicy: boolean;
  /** iptables may start dropping in it at any time. */
  readonly isIptablesFilter: boolean;
  readonly isMissing: boolean;
}

const IPTABLES_TABLES = ["filter", "mangle", "security", "nat", "raw"];
const IPTABLES_TABLES_WITHOUT_FORWARD = ["nat", "raw"];
const FILTER = "filter";
const FORWARD = "FORWARD";
/** The name in nft(8)'s examples. */
const NATIVE_FORWARD = "forward";
/** Controlled over D-Bus: firewalld generates its rules from its own settings. */
const FIREWALLD_TABLE = "firewalld";
/** linux/netfilter/nf_tables.h. Dormant tables count too: they may wake at any time. */
const NFT_TABLE_F_OWNER = 2;

/** All tables that see packets of these families except firewalld's, and iptables' `filter` even if missing. */
export function listForeignTables(nl: Netlink, families: readonly (4 | 6)[]): ForeignTable[] {
  const protocols = families.map((family) => family === 4 ? NFPROTO_IPV4 : NFPROTO_IPV6);
  const tables = nft.listTables(nl).filter(({ family, name = "" }) =>
    [NFPROTO_INET, ...protocols].includes(family) && isForeign(family, name)
  );
  const missing = protocols.filter((protocol) =>
    !tables.some(({ family, name }) => family === protocol && name === FILTER)
  );
  return [
    ...tables.map(({ family, name = "", flags = 0, comment }): ForeignTable => ({
      family,
      table: name,
      isIptables: isIptablesTable(family, name),
      hasOwner: (flags & NFT_TABLE_F_OWNER) !== 0,
      isMissing: false,
      comment,
    })),
    ...missing.map((family): ForeignTable => ({
      family,
      table: FILTER,
      isIptables: true,
      hasOwner: false,
      isMissing: true,
      comment: undefined,
    })),
  ];
}

const isForeign = (family: number, table: string): boolean =>
  table !== FIREWALLD_TABLE && !(family === inetTable.family && table === inetTable.table) &&
  !(isIptablesTable(family, table) && IPTABLES_TABLES_WITHOUT_FORWARD.includes(table));

const isIptablesTable = (family: number, table: string): boolean =>
  family !== NFPROTO_INET && IPTABLES_TABLES.includes(table);

/** Fetches the chains of these names in all tables in one send. */
export function findChains(
  nl: Netlink,
  tables: readonly ForeignTable[],
  names: readonly string[],
): ReadonlyMap<ForeignTable, ReadonlyMap<string, nft.Chain>> {
  const queries = tables.flatMap((table) => names.map((chain) => nft.chainQuery(table, chain)));
  const chains = nft.getAll(nl, queries);
  return new Map(tables.map((table, i) => {
    const found = chains.slice(i * names.length, (i + 1) * names.length).flatMap((chain) => chain ?? []);
    return [table, new Map(found.map((chain) => [chain.name ?? "", chain]))];
  }));
}

/** Fetched by name: an iptables table may have thousands of chains. */
export const IPTABLES_FORWARD_CHAINS: readonly string[] = [FORWARD, NATIVE_FORWARD];

/** @param namedChains for an iptables table: {@linkcode findChains} of {@linkcode IPTABLES_FORWARD_CHAINS} */
export function listForwardChains(
  nl: Netlink,
  { family, table, isIptables }: ForeignTable,
  namedChains: ReadonlyMap<string, nft.Chain> | undefined,
): ForwardChain[] {
  const chains = isIptables
    ? IPTABLES_FORWARD_CHAINS.flatMap((name) => namedChains?.get(name) ?? [])
    : nft.listBaseChains(nl, family).filter((chain) => chain.table === table);
  const forwardChains = chains.flatMap(({ name = "", hook, policy }): ForwardChain[] => {
    if (hook?.number !== NF_INET_FORWARD) return [];
    const isIptablesFilter = isIptables && table === FILTER && name === FORWARD;
    const dropsByPolicy = policy === NF_DROP;
    return [{ chain: name, priority: hook.priority ?? 0, dropsByPolicy, isIptablesFilter, isMissing: false }];
  });
  if (!isIptables || table !== FILTER || namedChains?.has(FORWARD)) return forwardChains;
  const missing = { dropsByPolicy: false, isIptablesFilter: true, isMissing: true };
  return [...forwardChains, { chain: FORWARD, priority: NF_IP_PRI_FILTER, ...missing }];
}

/** The chain as iptables makes it. */
export function iptablesForwardChain({ family, table }: nft.TableKey, chain: string): nft.ChainIn {
  const hook = { number: NF_INET_FORWARD, priority: NF_IP_PRI_FILTER };
  return { family, table, name: chain, type: "filter", hook, policy: NF_ACCEPT };
}

/** `chain "FORWARD" of table "ip filter"` */
export function describeForwardChain({ family, table }: ForeignTable, { chain }: ForwardChain): string {
  const families: Record<number, string> = { [NFPROTO_INET]: "inet", [NFPROTO_IPV4]: "ip", [NFPROTO_IPV6]: "ip6" };
  return `chain "${chain}" of table "${families[family]} ${table}"`;
}
