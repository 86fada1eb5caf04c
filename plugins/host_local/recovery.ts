/**
 * What crashes and restarts left of reservations.
 *
 * Nobody has an address that was reserved in an earlier boot, because no namespace outlives its boot. A reservation of another program does
 * not tell its boot. It counts as one of this boot unless its file is certainly older.
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

/** After this time, the process that wrote it has had its turn or has given up. */
const TEMPORARY_FILE_MAX_AGE_MS = 5 * 60_000;
/** The log names at most this many reclaimed addresses. */
const MAX_NAMED = 10;

/** Tells which reservations have the tag of an earlier boot. */
export function earlierBootFilter({ bootTags }: Inventory): (address: Ip) => boolean {
  const current = currentBootTag();
  return (address) => current !== 0 && (bootTags.get(address) ?? current) !== current;
}

/**
 * The reservations that are certainly of an earlier boot.
 *
 * @param createAgeTest makes the test for files of reservations without a tag
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
 * Removes what crashes left in a locked directory, and returns its inventory.
 *
 * The reference plugin creates a file and writes it later, but under the lock. So a crash left each empty file.
 *
 * @param log gets a line for each removed file that is not ours
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
    // Another program made what is no file.
    const content = ignoreErrors(NOT_A_FILE_CODES, () => findText(path));
    // A name without a boot may be another program's.
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
