/**
 * What crashes and restarts left of reservations.
 *
 * Nobody has an address of an earlier boot, because no namespace outlives its boot. A reservation of another program has no boot tag. It
 * counts as one of this boot unless its file is certainly older.
 *
 * @module
 */
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

/** After this time, no process waits for its turn any more. */
const TEMPORARY_FILE_MAX_AGE_MS = 5 * 60_000;
const MAX_NAMED = 10;

export function isOfEarlierBoot({ bootTag }: HeldAddress): boolean {
  const current = currentBootTag();
  return current !== 0 && bootTag !== 0 && bootTag !== current;
}

/** The reservations that are certainly of an earlier boot. @param createAgeTest for files without a tag @throws {SystemError} */
export function findEarlierBootAddresses(
  directory: string,
  inventory: Inventory,
  createAgeTest = modifiedBeforeBoot,
): HeldAddress[] {
  let isOlder: ReturnType<typeof createAgeTest> | undefined;
  return listHeldAddresses(inventory).filter((held) => {
    if (held.bootTag !== 0) return isOfEarlierBoot(held);
    const status = findStat(`${directory}/${held.address}`);
    return status?.isFile === true && (isOlder ??= createAgeTest())(status);
  });
}

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
    if (removeFile(path)) log(`Removed "${path}": its writer ended without removing it`);
  }
  return inventory;
}
