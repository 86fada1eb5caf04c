import type { Netlink } from "../../ffi/netlink/socket.ts";
import * as nft from "../../ffi/nft/objects.ts";
import {
  NF_INET_INGRESS,
  NFPROTO_BRIDGE,
  NFPROTO_INET,
  NFPROTO_IPV4,
  NFPROTO_IPV6,
  NFPROTO_NETDEV,
} from "../../ffi/nft/uapi.ts";
import { TABLES } from "../../plugins/lib/ruleset/repair.ts";

export type ForeignChain = nft.Chain & { readonly table: string };

// linux/netfilter/nf_tables.h
const NFT_TABLE_F_DORMANT = 1;

/** Leaves out chains of dormant tables. */
export function listForeignBaseChains(nl: Netlink, hooks: readonly number[]): ForeignChain[] {
  return [NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6].flatMap((family) =>
    listChainsOfFamily(nl, family).filter(({ hook }) => hooks.includes(hook!.number!))
  );
}

/** Those that see frames of links: of the families `netdev` and `bridge`, and `inet` at the hook `ingress`. */
export function listFrameChains(nl: Netlink): ForeignChain[] {
  return [
    ...[NFPROTO_NETDEV, NFPROTO_BRIDGE].flatMap((family) => listChainsOfFamily(nl, family)),
    ...listForeignBaseChains(nl, [NF_INET_INGRESS]),
  ];
}

function listChainsOfFamily(nl: Netlink, family: number): ForeignChain[] {
  const chains = nft.listBaseChains(nl, family);
  if (chains.length === 0) return [];
  const awake = nft.listTables(nl, family).filter(({ flags = 0 }) => !(flags & NFT_TABLE_F_DORMANT)).map(({ name }) =>
    name
  );
  return chains.flatMap((chain) => {
    const { table, hook } = chain;
    const isOwn = TABLES.some((own) => own.family === family && own.table === table);
    if (hook?.number === undefined || isOwn || table === undefined || !awake.includes(table)) return [];
    return [{ ...chain, table }];
  });
}
