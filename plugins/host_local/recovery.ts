/**
 * What crashes and restarts left of reservations.
 *
 * Nobody has an address that was reserved in an earlier boot: the namespace that it was given to ended with that boot. Where a
 * reservation does not tell its boot, because another program made it, it counts as one of this boot unless its file is certainly older.
 *
 * @module
 */
import type { Ip } from "../../ffi/address.ts";
import { beforeBoot } from "../../ffi/sys/boot.ts";
import { unless } from "../../ffi/sys/error.ts";
import { findText, NO_FILE, removeFile } from "../../ffi/sys/file.ts";
import { findStatus } from "../../ffi/sys/stat.ts";
import { currentBoot, describeHolder, formatHolder, type Held, heldOf, type Inventory } from "./inventory.ts";

/** By then, whoever wrote it has long had its turn or given up. */
const TEMPORARY_MAX_AGE_MS = 5 * 60_000;
/** So many reclaimed addresses are named. */
const MOST_NAMED = 10;

/** Whether a reservation tells that it is of an earlier boot. */
export function tellsEarlier({ boots }: Inventory): (address: Ip) => boolean {
  const current = currentBoot();
  return (address) => current !== 0 && (boots.get(address) ?? current) !== current;
}

/**
 * The reservations that are certainly of an earlier boot. What is no file of a reservation is left to whoever put it there.
 *
 * @param older makes what tells this of a file whose reservation does not tell
 * @throws {SystemError}
 */
export function findEarlier(directory: string, inventory: Inventory, older = beforeBoot): Held[] {
  const told = tellsEarlier(inventory);
  let isOlder: ReturnType<typeof older> | undefined;
  return heldOf(inventory).filter(({ address, boot }) => {
    if (boot !== 0) return told(address);
    const status = findStatus(`${directory}/${address}`);
    return status?.isFile === true && (isOlder ??= older())(status);
  });
}

/** `Reclaimed 2 addresses …: 10.0.0.2 of container "c1", interface "eth0"; …` */
export function describeReclaimed(earlier: readonly Held[]): string {
  const named = earlier.slice(0, MOST_NAMED).map(({ address, holder }) => `${address} of ${describeHolder(holder)}`);
  const more = earlier.length > named.length ? [`and ${earlier.length - named.length} more`] : [];
  const what = earlier.length === 1 ? "an address" : `${earlier.length} addresses`;
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
export function recover(directory: string, inventory: Inventory, log: (message: string) => void): Inventory {
  for (const { name, content } of inventory.broken) {
    const found = content === "" ? "it is empty" : `it holds ${JSON.stringify(content.slice(0, 80))}`;
    if (removeFile(`${directory}/${name}`)) {
      log(`Recovered address ${name}: "${directory}/${name}" named no container, ${found}`);
    }
  }
  for (const { name, holder, boot } of inventory.orphans) {
    const [path, text] = [`${directory}/${name}`, formatHolder(holder)];
    // What is no file was put there by somebody else.
    const content = unless(NO_FILE, () => findText(path));
    // Of the names without a boot, some may be of others.
    if (content !== undefined && (boot !== 0 || text.startsWith(content))) removeFile(path);
  }
  for (const name of inventory.temporaries) {
    const path = `${directory}/${name}`;
    const status = findStatus(path);
    if (!status?.isFile || Date.now() - Number(status.modified / 1_000_000n) < TEMPORARY_MAX_AGE_MS) continue;
    if (removeFile(path)) log(`Removed "${path}": it was left by a process that ended before its time`);
  }
  return inventory;
}
