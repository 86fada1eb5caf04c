import type { Netlink } from "../../ffi/netlink/socket.ts";
import * as nft from "../../ffi/nft/objects.ts";
import { NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6 } from "../../ffi/nft/uapi.ts";
import { inetTable } from "../../plugins/lib/ruleset/inet_table.ts";

/** A base chain of another table. */
export type ForeignChain = nft.Chain & { readonly table: string };

/** linux/netfilter/nf_tables.h */
const NFT_TABLE_F_DORMANT = 1;

/** Of tables that are awake. */
export function listForeignBaseChains(nl: Netlink, hooks: readonly number[]): ForeignChain[] {
  return [NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6].flatMap((family) => {
    const awake = nft.listTables(nl, family).filter(({ flags = 0 }) => !(flags & NFT_TABLE_F_DORMANT)).map(({ name }) =>
      name
    );
    return nft.listBaseChains(nl, family).flatMap((chain) => {
      const { table } = chain;
      const isOwn = family === inetTable.family && table === inetTable.table;
      const isWanted = chain.hook?.number !== undefined && hooks.includes(chain.hook.number);
      if (!isWanted || isOwn || table === undefined || !awake.includes(table)) return [];
      return [{ ...chain as nft.Chain, table }];
    });
  });
}
