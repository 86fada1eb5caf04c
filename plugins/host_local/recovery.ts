/**
 * What crashes and restarts left of reservations.
 *
 * Nobody has an address that was reserved in an earlier boot: the namespace that it was given to ended with that boot. Where a
 * reservation does not tell its boot, because another program made it, it counts as one of this boot unless its file is certainly older.
 *
 * @module
 */
import type { Ip } from "../../ffi/address.ts";
import { modifiedBeforeBoot } from "../../ffi/sys/boot.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { findText, NOT_A_FILE_CODES, removeFile } from "../../ffi/sys/file.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import {
  currentBootTag,
  describeHolder,
  formatHolder,
  type HeldAddress,
  type Inventory,
  listHeldAddresses,
} from "./inventory.ts";

/** By then, whoever wrote it has long had its turn or given up. */
const TEMPORARY_FILE_MAX_AGE_MS = 5 * 60_000;
/** So many reclaimed addresses are named. */
const MAX_NAMED = 10;

/** Whether a reservation tells that it is of an earlier boot. */
export function earlierBootFilter({ bootTags }: Inventory): (address: Ip) => boolean {
  const current = currentBootTag();
  return (address) => current !== 0 && (bootTags.get(address) ?? current) !== current;
}

/**
 * The reservations that are certainly of an earlier boot. What is no file of a reservation is left to whoever put it there.
 *
 * @param createAgeTest makes what tells this of a file whose reservation does not tell
 * @throws {SystemError}
 */
export function findEarlierBootAddresses(
  directory: string,
  inventory: Inventory,
  createAgeTest = modifiedBeforeBoot,
): HeldAddress[] {
  const isOfEarlierBoot = earlierBootFilter(inventory);
  let isOlder: ReturnType<typeof createAgeTest> | undefined;
  return listHeldAddresses(inventory).filter(({ address, bootTag }) => {
    if (bootTag !== 0) return isOfEarlierBoot(address);
    const status = findStat(`${directory}/${address}`);
    return status?.isFile === true && (isOlder ??= createAgeTest())(status);
  });
}

/** `Reclaimed 2 addresses …: 10.0.0.2 of container "c1", interface "eth0"; …` */
export function describeReclaimed(reclaimed: readonly HeldAddress[]): string {
  const named = reclaimed.slice(0, MAX_NAMED).map(({ address, holder }) => `${address} of ${describeHolder(holder)}`);
  const more = reclaimed.length > named.length ? [`and ${reclaimed.length - named.length} more`] : [];
  const what = reclaimed.length === 1 ? "an address" : `${reclaimed.length} addresses`;
  return `Reclaimed ${what} reserved before the last start of the machine: ${[...named, ...more].join("; ")}`;
}

/**
 * Removes what crashes left in a directory that is locked, and gives its inventory.
 *
 * The reference plugin writes a file after it created it, but under the lock: whoever sees an empty one there sees what
 * a crash left.
 *
 * @param log told of every file that is removed although it is not ours
 * @throws {SystemError}
 */
export function recoverDirectory(directory: string, inventory: Inventory, log: (message: string) => void): Inventory {
  for (const { name, content } of inventory.corrupt) {
    const description = content === "" ? "it is empty" : `it holds ${JSON.stringify(content.slice(0, 80))}`;
    if (removeFile(`${directory}/${name}`)) {
      log(`Recovered address ${name}: "${directory}/${name}" named no container, ${description}`);
    }
  }
  for (const { name, holder, bootTag } of inventory.orphans) {
    const [path, text] = [`${directory}/${name}`, formatHolder(holder)];
    // What is no file was put there by somebody else.
    const content = ignoreErrors(NOT_A_FILE_CODES, () => findText(path));
    // Of the names without a boot, some may be of others.
    if (content !== undefined && (bootTag !== 0 || text.startsWith(content))) removeFile(path);
  }
  for (const name of inventory.temporaryFiles) {
    const path = `${directory}/${name}`;
    const status = findStat(path);
    if (!status?.isFile || Date.now() - Number(status.mtime / 1_000_000n) < TEMPORARY_FILE_MAX_AGE_MS) continue;
    if (removeFile(path)) log(`Removed "${path}": it was left by a process that ended before its time`);
  }
  return inventory;
}
