/**
 * Recovers reservations that crashes and restarts left behind.
 *
 * A namespace cannot outlive its boot, so nobody uses an address of an earlier boot. Other programs' reservations have no boot tag. They
 * count as this boot's unless their file is certainly older.
 */
import { modifiedBeforeBoot } from "../../ffi/sys/boot.ts";
import { explainDirectory } from "../../ffi/sys/directory_in_place.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { findText, NOT_A_FILE_CODES, removeFile } from "../../ffi/sys/file.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import { currentBootTag, formatHolder, type HeldAddress, type Inventory, listHeldAddresses } from "./inventory.ts";
import { describeHolder } from "../lib/model/reservations.ts";

/** No writer waits for the lock this long: an older temporary file is a crash's. */
const TEMPORARY_FILE_MAX_AGE_MS = 5 * 60_000;
const MAX_NAMED = 10;

export function isOfEarlierBoot({ bootTag }: HeldAddress): boolean {
  const current = currentBootTag();
  return current !== 0 && bootTag !== 0 && bootTag !== current;
}

/** @param createAgeTest for files without a tag */
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
 * Removes what crashes left in a locked directory.
 *
 * The reference plugin creates a file and writes it later, both under the lock. So an empty file is from a crash.
 *
 * @param log gets a line for each removed file that is not ours
 */
export function recoverDirectory(directory: string, inventory: Inventory, log: (message: string) => void): Inventory {
  for (const { name, content } of inventory.corrupt) {
    const description = content === "" ? "it is empty" : `it holds ${JSON.stringify(content.slice(0, 80))}`;
    if (removeFile(`${directory}/${name}`)) {
      log(`Recovered address ${name}: "${directory}/${name}" named no container, ${description}`);
    }
  }
  for (const [address, holder] of inventory.holders) {
    if (holder) continue;
    log(`Cannot read "${directory}/${address}": the address counts as reserved; remove it if no container has it`);
  }
  for (const { name, holder, bootTag } of inventory.orphans) {
    const [path, text] = [`${directory}/${name}`, formatHolder(holder)];
    const content = findTextOrLog(path, log);
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

/** Another program may have made a directory. */
function findTextOrLog(path: string, log: (message: string) => void): string | undefined {
  try {
    return explainDirectory(() => findText(path));
  } catch (error) {
    if (!(error instanceof SystemError && NOT_A_FILE_CODES.includes(error.code))) throw error;
    log(error.message);
    return undefined;
  }
}
