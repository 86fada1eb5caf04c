/** Changes a network's reservations under its lock. A crash leaves a whole reservation or none. */
import type { Ip } from "../../ffi/address.ts";
import { ignoreSystemErrors, SystemError } from "../../ffi/sys/error.ts";
import { hardLink, removeFile, renameFile } from "../../ffi/sys/file.ts";
import { explainDirectory, removeFileOrLog } from "../../ffi/sys/directory_in_place.ts";
import { writeTemporary, writeUnnamed } from "../../ffi/sys/atomic_file.ts";
import { type FileLockOptions, lockFile } from "../../ffi/sys/lock.ts";
import { findStat, findSymlinkTarget } from "../../ffi/sys/stat.ts";
import { lockOrTryAgainLater } from "../lib/protocol/lock_wait.ts";
import type { Attachment } from "../../spec/plugin_config.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { AddressUsage } from "./allocate.ts";
import { type LastReserved, openLastReserved } from "./last_reserved.ts";
import { openIndex, rebuildIndex, type ReservationIndex } from "./reservation_index.ts";
import {
  currentBootTag,
  formatHolder,
  type HeldAddress,
  holderLinkName,
  type Inventory,
  readHolderFile,
  readInventory,
} from "./inventory.ts";
import type { AddressHolder } from "../lib/model/reservations.ts";
import { describeReclaimed, findEarlierBootAddresses, recoverDirectory } from "./recovery.ts";

/** Longer than any queue that moves, and below the kubelet's two minutes for ADD. */
const LOCK_TIMEOUT_MS = 10_000;
/** A newer list suffices to refuse an ADD: engines retry ADD on a full network. */
const LIST_MAX_AGE_MS = 60_000;

/** Locked until the scope ends. */
export interface ReservationStore extends AddressUsage, Disposable {
  findByAttachment(attachment: Attachment): HeldAddress[];
  list(): Inventory;
  /** If `choose` finds no address, retries with a new list, then without reservations of earlier boots. */
  allocateWith<T>(choose: () => T): T;
  /** Reserves one address per range set, in order. If it throws, it reserves none. */
  reserve(reservation: PreparedReservation, addresses: readonly Ip[]): void;
  release(held: readonly HeldAddress[]): void;
}

/** A written reservation without an address, removed at the end of its scope. */
export interface PreparedReservation extends Disposable {
  readonly path: string;
  /** Has a name in the directory. */
  readonly isNamed: boolean;
  readonly attachment: Attachment;
}

/** A symbolic link is not followed but logged: nobody moves the state of one network alone. */
export function isNetworkDirectory(directory: string, log: (message: string) => void): boolean {
  if (findStat(directory, false)?.isDirectory) return true;
  if (findSymlinkTarget(directory) !== undefined) {
    log(`"${directory}" is a symbolic link, which is not followed; continuing without it`);
  }
  return false;
}

function explainSymlink<T>(directory: string, call: () => T): T {
  try {
    return call();
  } catch (error) {
    const isRefused = error instanceof SystemError && (error.code === "ENOTDIR" || error.code === "ELOOP");
    if (!isRefused || findSymlinkTarget(directory) === undefined) throw error;
    const remark = "it is a symbolic link, which is not followed: remove it, or put what it leads to in its place";
    throw new SystemError(error.syscall, error.errno, `write to directory "${directory}"`, remark);
  }
}

/** Needs no lock, so nobody waits for the write. */
export function prepareReservation(directory: string, attachment: Attachment): PreparedReservation {
  const content = formatHolder(attachment);
  // An unnamed file keeps the index valid and leaves nothing after a crash.
  const unnamed = explainSymlink(directory, () => writeUnnamed(directory, content));
  if (unnamed) return { ...unnamed, isNamed: false, attachment };
  const path = writeTemporary(`${directory}/new`, content);
  return { path, isNamed: true, attachment, [Symbol.dispose]: () => void removeFile(path) };
}

export function requireWritableReservations(directory: string): void {
  const unnamed = explainSymlink(directory, () => writeUnnamed(directory, ""));
  if (unnamed) unnamed[Symbol.dispose]();
  else removeFile(writeTemporary(`${directory}/status`, ""));
}

/**
 * Locks the reservations with the reference plugin's lock. If it lists them, it also recovers from crashes.
 *
 * @param log gets a line for each removed file that is not ours
 * @throws {CniError} code 11 naming the process that holds the lock longer than `timeoutMs`
 */
export function lockStore(
  directory: string,
  log: (message: string) => void,
  { timeoutMs = LOCK_TIMEOUT_MS, ...options }: Partial<FileLockOptions> = {},
): ReservationStore {
  using resources = new DisposableStack();
  resources.use(lockOrTryAgainLater(() => lockFile(`${directory}/lock`, { timeoutMs, ...options })));
  const view = resources.use(openDirectoryView(directory, log));
  const lastReserved = resources.use(openLastReserved(directory, log));
  const lock = resources.move();
  return {
    isAllocated: (address) => view.index.table.has(address),
    findFree: (from) => view.index.table.findFree(from),
    findHolder: (address) => tryReadHolder(directory, address),
    findLastReserved: (set) => lastReserved.find(set),
    findByAttachment({ containerId, ifname }) {
      const byInterface = findAddressesOf(directory, view, { containerId, ifname });
      return byInterface.length > 0 ? byInterface : findAddressesOf(directory, view, { containerId });
    },
    list: view.list,
    allocateWith: (choose) =>
      withRemedies(choose, [() => refreshIfStale(view), () => reclaimEarlierBoots(directory, view, log)]),
    reserve: (reservation, addresses) => linkReservation(directory, view.index, reservation, addresses, lastReserved),
    release: (held) => releaseAddresses(directory, view.index, held, log),
    [Symbol.dispose]: () => lock.dispose(),
  };
}

interface DirectoryView extends Disposable {
  readonly index: ReservationIndex;
  /** `undefined` until `list` was called. */
  readonly inventory: Inventory | undefined;
  /** Lists the directory once, and rebuilds the index. */
  list(): Inventory;
}

function openDirectoryView(directory: string, log: (message: string) => void): DirectoryView {
  let index = openIndex(directory);
  let inventory: Inventory | undefined;
  const list = (): Inventory => {
    if (inventory) return inventory;
    index?.[Symbol.dispose]();
    const rebuilt = rebuildIndex(directory, () => recoverDirectory(directory, readInventory(directory), log));
    ({ index, inventory } = rebuilt);
    return inventory;
  };
  if (!index) list();
  return {
    get index() {
      return index!;
    },
    get inventory() {
      return inventory;
    },
    list,
    [Symbol.dispose]: () => index![Symbol.dispose](),
  };
}

/** Retries `choose` after each remedy that changed something. */
function withRemedies<T>(choose: () => T, remedies: (() => boolean)[]): T {
  for (;;) {
    try {
      return choose();
    } catch (error) {
      if (!(error instanceof CniError) || error.code === Code.InvalidConfig) throw error;
      const applied = remedies.findIndex((remedy) => remedy());
      if (applied < 0) throw error;
      remedies = remedies.slice(applied + 1);
    }
  }
}

function refreshIfStale(view: DirectoryView): boolean {
  if (view.inventory || Math.abs(Date.now() - view.index.listedAt) < LIST_MAX_AGE_MS) return false;
  view.list();
  return true;
}

function reclaimEarlierBoots(directory: string, view: DirectoryView, log: (message: string) => void): boolean {
  if (!view.index.mayHaveEarlierBoot) return false;
  const earlier = findEarlierBootAddresses(directory, view.list());
  releaseAddresses(directory, view.index, earlier, log);
  view.index.mayHaveEarlierBoot = false;
  view.index.commit();
  if (earlier.length === 0) return false;
  log(describeReclaimed(earlier));
  return true;
}

/** What the index says and the directory confirms. */
function findAddressesOf(directory: string, view: DirectoryView, holder: AddressHolder): HeldAddress[] {
  const found = view.index.table.findByHolder(holder);
  const { inventory } = view;
  const held = found.filter(({ address }) => {
    // A file may be damaged. The list has its holder by the second name.
    const actual = inventory?.holders.get(address) ?? tryReadHolder(directory, address);
    return actual?.containerId === holder.containerId && actual.ifname === holder.ifname;
  });
  if (held.length === found.length || inventory) return held.map((reserved) => ({ ...reserved, holder }));
  view.list();
  return findAddressesOf(directory, view, holder);
}

function tryReadHolder(directory: string, address: Ip): AddressHolder | undefined {
  return ignoreSystemErrors(() => readHolderFile(`${directory}/${address}`));
}

/** If killed between two links, DEL releases the linked addresses. */
function linkReservation(
  directory: string,
  index: ReservationIndex,
  reservation: PreparedReservation,
  addresses: readonly Ip[],
  lastReserved: LastReserved,
): void {
  const linked: Ip[] = [];
  const boot = currentBootTag();
  try {
    for (const address of addresses) {
      if (!hardLink(reservation.path, `${directory}/${address}`)) {
        index.invalidate();
        throw addressAppearedError(directory, address);
      }
      linked.push(address);
    }
    for (const [set, address] of addresses.entries()) lastReserved.write(set, address);
    addHolderLink(directory, reservation, boot);
  } catch (error) {
    for (const address of linked) removeFile(`${directory}/${address}`);
    throw error;
  }
  for (const address of addresses) index.table.add(address, reservation.attachment, boot);
  index.commit();
}

/** An earlier reservation may have left the name. */
function addHolderLink(directory: string, { path, isNamed, attachment }: PreparedReservation, boot: number): void {
  const name = holderLinkName(attachment, boot);
  const linkPath = `${directory}/${name}`;
  if (isNamed) {
    if (name === undefined) removeFile(path);
    else explainDirectory(() => renameFile(path, linkPath));
  } else if (name !== undefined && !hardLink(path, linkPath)) {
    explainDirectory(() => removeFile(linkPath));
    hardLink(path, linkPath);
  }
}

function addressAppearedError(directory: string, address: Ip): CniError {
  return new CniError(
    Code.TryAgainLater,
    `Cannot reserve address ${address}: "${directory}/${address}" appeared while "${directory}/lock" was locked`,
  );
}

function releaseAddresses(
  directory: string,
  index: ReservationIndex,
  held: readonly HeldAddress[],
  log: (message: string) => void,
): void {
  if (held.length === 0) return;
  const holderLinks = new Map<string, HeldAddress>();
  for (const heldAddress of held) {
    const { address, holder, bootTag } = heldAddress;
    removeFileOrLog(`${directory}/${address}`, log);
    index.table.remove(address);
    const name = holderLinkName(holder, bootTag);
    if (name !== undefined) holderLinks.set(name, heldAddress);
  }
  for (const [name, { holder, bootTag }] of holderLinks) {
    const isStillUsed = index.table.findByHolder(holder).some((reserved) => reserved.bootTag === bootTag);
    if (!isStillUsed) removeFileOrLog(`${directory}/${name}`, log);
  }
  index.commit();
}
