/** What host-local keeps for a network, for commands that show and remove networks. */
import type { Ip } from "../../ffi/address.ts";
import { findEntryNames, removeEmptyDirectory } from "../../ffi/sys/directory.ts";
import { removeFile } from "../../ffi/sys/file.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import type { PluginConfig } from "../../spec/plugin_config.ts";
import type { AddressPool } from "../lib/model/reservations.ts";
import { dataDirConfig, parseHostLocalConfig } from "./config.ts";
import { type Inventory, listHeldAddresses, readInventory } from "./inventory.ts";
import type { AddressHolder } from "../lib/model/reservations.ts";
import { capacityOf, findRangeOf, type RangeSet } from "../lib/model/address_ranges.ts";
import { findEarlierBootAddresses } from "./recovery.ts";
import { indexPath } from "./reservation_index.ts";
import { isNetworkDirectory, lockStore } from "./reservation_store.ts";

export function networkDirectoryOf({ raw, name }: PluginConfig): string {
  return `${dataDirConfig.parse(raw).ipam.dataDir}/${name}`;
}

export function readAddressPools(config: PluginConfig): AddressPool[] {
  const { holders } = readInventory(networkDirectoryOf(config));
  return parseHostLocalConfig(config).sets.map((set) => describePool(set, holders));
}

function describePool(set: RangeSet, holders: Inventory["holders"]): AddressPool {
  const isAllocatable = (address: Ip) => (findRangeOf(set, address)?.gateway ?? address) !== address;
  const used = [...holders.keys()].filter(isAllocatable).length;
  return {
    subnets: set.ranges.map(({ subnet }) => subnet),
    gateways: set.ranges.map(({ gateway }) => gateway),
    used,
    free: exactNumber(capacityOf(set) - BigInt(used)),
  };
}

function exactNumber(count: bigint): number | string {
  return count <= Number.MAX_SAFE_INTEGER ? Number(count) : String(count);
}

/** Holders of addresses that were reserved in this boot. */
export function listHolders(directory: string): AddressHolder[] {
  const inventory = readInventory(directory);
  const earlier = new Set(findEarlierBootAddresses(directory, inventory).map(({ address }) => address));
  return listHeldAddresses(inventory).filter(({ address }) => !earlier.has(address)).map(({ holder }) => holder);
}

/**
 * Removes the directory unless an address is reserved or others' files are in it.
 *
 * @returns false if it stays; why is logged
 * @throws {SystemError}
 */
export function removeNetworkDirectory(directory: string, log: (message: string) => void): boolean {
  if (!isNetworkDirectory(directory, log)) return findStat(directory, false) === undefined;
  using store = lockStore(directory, log);
  // The recovery of list() removes second names without an address.
  const { holders, temporaryFiles } = store.list();
  if (holders.size > 0) {
    log(`"${directory}" stays: ${holders.size} addresses in it are reserved`);
    return false;
  }
  const isOwn = (name: string) => /^(lock|last_reserved_ip\.\d+)$/.test(name) || temporaryFiles.includes(name);
  const names = findEntryNames(directory) ?? [];
  for (const name of names.filter(isOwn)) removeFile(`${directory}/${name}`);
  removeFile(indexPath(directory));
  const foreign = names.find((name) => !isOwn(name));
  if (foreign === undefined) removeEmptyDirectory(directory);
  else log(`"${directory}" stays: "${foreign}" in it is not of host-local`);
  return foreign === undefined;
}
