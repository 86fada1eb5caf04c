import { NetlinkError } from "../../ffi/netlink/error.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { FAMILY_NAMES } from "../../ffi/nft/family_names.ts";
import { listElements, listSets, type TableKey } from "../../ffi/nft/objects.ts";
import { TABLES } from "../../plugins/lib/ruleset/repair.ts";
import { listCacheEntries } from "../../runtime/cache.ts";
import { findNetworks, summarizeNetwork } from "../../networks/list.ts";
import type { Runtime } from "../../runtime/runtime.ts";

export interface PoolMeasure {
  readonly network: string;
  /** The subnets, a comma between them. */
  readonly pool: string;
  readonly used: number;
  readonly free: number;
}

export interface SetMeasure {
  readonly table: string;
  readonly set: string;
  readonly elements: number;
}

/** @param log told of files that are no networks */
export function measurePools(runtime: Runtime, confDirectory: string, log: (message: string) => void): PoolMeasure[] {
  return findNetworks(runtime, confDirectory, [], log).flatMap((network) =>
    summarizeNetwork(network, [], log).pools.map(({ subnets, used, free }) => ({
      network: network.list.name,
      pool: subnets.join(","),
      used,
      free: Number(free),
    }))
  );
}

export function countAttachments(cacheDirectories: readonly string[]): ReadonlyMap<string, number> {
  const entries = cacheDirectories.flatMap((directory) => listCacheEntries(directory));
  return new Map([...Map.groupBy(entries, ({ network }) => network)].map(([network, { length }]) => [network, length]));
}

export function measureSets(nl: Netlink): SetMeasure[] {
  return TABLES.flatMap((table) =>
    listSetNames(nl, table).filter((set) => !table.isTransient?.(set)).map((set) => ({
      table: `${FAMILY_NAMES[table.family]} ${table.table}`,
      set,
      elements: listElements(nl, table, set).length,
    }))
  ).filter(({ elements }) => elements > 0);
}

function listSetNames(nl: Netlink, table: TableKey): string[] {
  try {
    return listSets(nl, table).map(({ name = "" }) => name);
  } catch (error) {
    // The kernel has no nf_tables.
    if (error instanceof NetlinkError) return [];
    throw error;
  }
}
