/** Tables of other programs. A packet that one of their chains drops stays dropped, whatever others accept. */
import { FAMILY_NAMES } from "../../../ffi/nft/family_names.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import { NF_DROP, NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6 } from "../../../ffi/nft/uapi.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { inetTable } from "./inet_table.ts";
import { POLICY_TABLE } from "./policy_table_key.ts";

/** The table of the network between nodes, whose rules are in `cluster/network/`. */
export const CLUSTER_TABLE: nft.TableKey = { family: NFPROTO_INET, table: "cni_cluster" };

export interface ForeignTable extends nft.TableKey {
  /** iptables reads only rules that it could have written. */
  readonly isIptables: boolean;
  /** Only the owner program can change the table. */
  readonly hasOwner: boolean;
  /** iptables creates it on demand. */
  readonly isMissing: boolean;
  readonly comment: string | undefined;
}

const IPTABLES_TABLES = ["filter", "mangle", "security", "nat", "raw"];
/** They have no filtering chains that see packets to the host or through it. */
const IPTABLES_TABLES_WITHOUT_FILTER = ["nat", "raw"];
export const IPTABLES_FILTER = "filter";
/** Controlled over D-Bus: firewalld generates its rules from its own settings. */
const FIREWALLD_TABLE = "firewalld";
/** With a chain for each Service and each endpoint. It refuses single calls only. */
export const KUBE_PROXY_TABLE = "kube-proxy";
/** linux/netfilter/nf_tables.h. Dormant tables count too: they may wake at any time. */
const NFT_TABLE_F_OWNER = 2;

/** All tables that may drop every packet of these families; iptables' `filter` even if missing. */
export function listForeignTables(nl: Netlink, families: readonly (4 | 6)[]): ForeignTable[] {
  const protocols = families.map((family) => family === 4 ? NFPROTO_IPV4 : NFPROTO_IPV6);
  const tables = nft.listTables(nl).filter(({ family, name = "" }) =>
    [NFPROTO_INET, ...protocols].includes(family) && isForeign(family, name)
  );
  const missing = protocols.filter((protocol) =>
    !tables.some(({ family, name }) => family === protocol && name === IPTABLES_FILTER)
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
      table: IPTABLES_FILTER,
      isIptables: true,
      hasOwner: false,
      isMissing: true,
      comment: undefined,
    })),
  ];
}

const isForeign = (family: number, table: string): boolean =>
  ![FIREWALLD_TABLE, KUBE_PROXY_TABLE].includes(table) && ![inetTable, CLUSTER_TABLE, POLICY_TABLE].some((own) =>
    family === own.family && table === own.table
  ) &&
  !(isIptablesTable(family, table) && IPTABLES_TABLES_WITHOUT_FILTER.includes(table));

const isIptablesTable = (family: number, table: string): boolean =>
  family !== NFPROTO_INET && IPTABLES_TABLES.includes(table);

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

export interface ForeignBaseChain {
  readonly chain: string;
  readonly priority: number;
  readonly dropsByPolicy: boolean;
}

/** The names that a hook's chains have, of iptables and of nft(8)'s examples, and the hook. */
export interface ForeignHook {
  readonly number: number;
  readonly names: readonly string[];
}

export type BaseChainLister = (family: number) => readonly nft.Chain[];

/** Lists each family once: the kernel lists the chains of all its tables, of which another may have thousands. */
export function baseChainLister(nl: Netlink): BaseChainLister {
  const listed = new Map<number, readonly nft.Chain[]>();
  return (family) => listed.getOrInsertComputed(family, () => nft.listBaseChains(nl, family));
}

/** @param namedChains for an iptables table, which may have thousands of chains: {@linkcode findChains} of the hook's names */
export function listForeignHookChains(
  listBaseChains: BaseChainLister,
  { family, table, isIptables }: ForeignTable,
  { number, names }: ForeignHook,
  namedChains: ReadonlyMap<string, nft.Chain> | undefined,
): ForeignBaseChain[] {
  const chains = isIptables
    ? names.flatMap((name) => namedChains?.get(name) ?? [])
    : listBaseChains(family).filter((chain) => chain.table === table);
  return chains.filter(({ hook }) => hook?.number === number).map(({ name = "", hook, policy }) => ({
    chain: name,
    priority: hook?.priority ?? 0,
    dropsByPolicy: policy === NF_DROP,
  }));
}

export function describeForeignChain(
  { family, table }: nft.TableKey,
  { chain }: Pick<ForeignBaseChain, "chain">,
): string {
  return `chain "${chain}" of table "${FAMILY_NAMES[family]} ${table}"`;
}
