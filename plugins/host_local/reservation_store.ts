/**
 * Changing the reservations of a network, under its lock and so that a crash at any point leaves a whole reservation or none.
 *
 * @module
 */
import type { Ip } from "../../ffi/address.ts";
import { ignoreSystemErrors, SystemError } from "../../ffi/sys/error.ts";
import { hardLink, removeFile, renameFile } from "../../ffi/sys/file.ts";
import { writeTemporary, writeUnnamed } from "../../ffi/sys/atomic_file.ts";
import { lockFile } from "../../ffi/sys/lock.ts";
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
  type Holder,
  holderLinkName,
  type Inventory,
  readHolderFile,
  readInventory,
} from "./inventory.ts";
import { describeReclaimed, findEarlierBootAddresses, recoverDirectory } from "./recovery.ts";

/** Longer than any queue that still moves, and well below the two minutes a kubelet gives an ADD. */
const LOCK_TIMEOUT_MS = 10_000;
/** For so long a list of the directory is good enough to refuse somebody: a full network is asked again and again. */
const LIST_MAX_AGE_MS = 60_000;

/** The reservations of one network, locked until its scope ends. */
export interface ReservationStore extends AddressUsage, Disposable {
  /** What an attachment holds, from old versions if there is nothing else. */
  findByAttachment(attachment: Attachment): HeldAddress[];
  /** Everything, as the directory has it. */
  list(): Inventory;
  /**
   * Runs `choose`, which changes nothing; what it refuses, it refuses for what is in the directory and not in the index alone, and for
   * what is not of an earlier boot: such reservations are given up first, and that is said.
   */
  allocateWith<T>(choose: () => T): T;
  /** Makes the reservation hold these addresses, one per range set and in their order: all, or none if it throws. */
  reserve(reservation: PreparedReservation, addresses: readonly Ip[]): void;
  /** Gives addresses back. */
  release(held: readonly HeldAddress[]): void;
}

/** A reservation that is written and does not hold an address yet; given up when its scope ends. */
export interface PreparedReservation extends Disposable {
  readonly path: string;
  /** Whether it has a name in the directory. */
  readonly isNamed: boolean;
  readonly attachment: Attachment;
}

/**
 * Whether a network has a directory. It is no link: whoever moves the state of a node moves all networks, so that a link in the place of
 * one was put there by somebody else, and what it leads to is not ours to write into.
 *
 * @param log told of a link
 * @throws {SystemError}
 */
export function isNetworkDirectory(directory: string, log: (message: string) => void): boolean {
  if (findStat(directory, false)?.isDirectory) return true;
  if (findSymlinkTarget(directory) !== undefined) {
    log(`"${directory}" is a symbolic link, which is not followed; continuing without it`);
  }
  return false;
}

/** Says so if a call fails since it follows no link. */
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

/** Writes a reservation before the lock is taken, so that others wait for less. @throws {SystemError} */
export function prepareReservation(directory: string, attachment: Attachment): PreparedReservation {
  const content = formatHolder(attachment);
  // Without a name it leaves the directory as it is, and the index with it, and is gone after a crash.
  const unnamed = explainSymlink(directory, () => writeUnnamed(directory, content));
  if (unnamed) return { ...unnamed, isNamed: false, attachment };
  const path = writeTemporary(`${directory}/new`, content);
  return { path, isNamed: true, attachment, [Symbol.dispose]: () => void removeFile(path) };
}

/** Makes sure that a reservation could be written. @throws {SystemError} */
export function requireWritableReservations(directory: string): void {
  const unnamed = explainSymlink(directory, () => writeUnnamed(directory, ""));
  if (unnamed) unnamed[Symbol.dispose]();
  else removeFile(writeTemporary(`${directory}/status`, ""));
}

/**
 * Locks the reservations in `directory`, which exists, as the reference plugin does; if they have to be listed, it removes what crashes left
 * there.
 *
 * @param log told of every file that is removed although it is not ours
 * @throws {CniError} code 11 naming who holds the lock for longer than `timeoutMs`
 */
export function lockStore(
  directory: string,
  log: (message: string) => void,
  timeoutMs = LOCK_TIMEOUT_MS,
): ReservationStore {
  using resources = new DisposableStack();
  resources.use(lockOrTryAgainLater(() => lockFile(`${directory}/lock`, { timeoutMs })));
  const view = openDirectoryView(directory, log);
  resources.use(view);
  const lastReserved = resources.use(openLastReserved(directory, log));
  const lock = resources.move();
  const { query } = view;
  return {
    isAllocated: (address) => query((index) => index.isAllocated(address)),
    findFree: (from) => query((index) => index.findFree(from)),
    findHolder: (address) => tryReadHolder(directory, address),
    findLastReserved: (set) => lastReserved.find(set),
    findByAttachment({ containerId, ifname }) {
      const byInterface = findAddressesOf(directory, view, { containerId, ifname });
      return byInterface.length > 0 ? byInterface : findAddressesOf(directory, view, { containerId });
    },
    list: view.list,
    allocateWith: (choose) => retryAfterReclaim(view, () => reclaimEarlierBoots(directory, view, log), choose),
    reserve: (reservation, addresses) => linkReservation(directory, view, reservation, addresses, lastReserved),
    release: (held) => releaseAddresses(directory, view, held),
    [Symbol.dispose]: () => lock.dispose(),
  };
}

/** What is known of the directory: by its index, and from the first doubt on by a list of it. */
interface DirectoryView extends Disposable {
  /** When the directory was listed; `undefined` if that was for this call. */
  readonly listedAt: number | undefined;
  list(): Inventory;
  /** An index that cannot be read is replaced. */
  query<T>(question: (index: ReservationIndex) => T): T;
}

function openDirectoryView(directory: string, log: (message: string) => void): DirectoryView {
  let index = openIndex(directory);
  let inventory: Inventory | undefined;
  const close = () => {
    index?.[Symbol.dispose]();
    index = undefined;
  };
  const list = (): Inventory => {
    if (inventory) return inventory;
    close();
    const rebuilt = rebuildIndex(directory, () => recoverDirectory(directory, readInventory(directory), log));
    index = rebuilt.index;
    return inventory = rebuilt.all;
  };
  const currentIndex = (): ReservationIndex => index ?? (list(), index!);
  currentIndex();
  return {
    get listedAt() {
      return inventory ? undefined : currentIndex().listedAt;
    },
    list,
    query(read) {
      try {
        return read(currentIndex());
      } catch (error) {
        if (inventory || !(error instanceof SystemError)) throw error;
        list();
        return read(currentIndex());
      }
    },
    [Symbol.dispose]: close,
  };
}

/** @param reclaim gives up what cannot be needed any more; false if there was nothing */
function retryAfterReclaim<T>(view: DirectoryView, reclaim: () => boolean, choose: () => T): T {
  const remedies = [() => refreshIfStale(view), reclaim];
  for (;;) {
    try {
      return choose();
    } catch (error) {
      if (!(error instanceof CniError) || error.code === Code.InvalidConfig) throw error;
      while (!remedies[0]?.()) if (remedies.shift() === undefined) throw error;
      remedies.shift();
    }
  }
}

/** False if the list that is known is good enough. */
function refreshIfStale({ listedAt, list: reload }: DirectoryView): boolean {
  if (listedAt === undefined || Math.abs(Date.now() - listedAt) < LIST_MAX_AGE_MS) return false;
  reload();
  return true;
}

/** No namespace outlives its boot, so nobody has the addresses that were reserved in an earlier one. */
function reclaimEarlierBoots(directory: string, view: DirectoryView, log: (message: string) => void): boolean {
  if (!view.query((index) => index.mayHaveEarlierBoot())) return false;
  const earlier = findEarlierBootAddresses(directory, view.list());
  releaseAddresses(directory, view, earlier);
  view.query((index) => index.clearEarlierBoot());
  if (earlier.length === 0) return false;
  log(describeReclaimed(earlier));
  return true;
}

/** What the index says and the directory confirms. */
function findAddressesOf(directory: string, view: DirectoryView, holder: Holder): HeldAddress[] {
  const entries = view.query((index) => index.findByHolder(holder));
  // A file can be damaged; a list tells by its second name whose it is.
  const holders = view.listedAt === undefined ? view.list().holders : undefined;
  const held = entries.filter(({ address }) => {
    const actual = holders?.get(address) ?? tryReadHolder(directory, address);
    return actual?.containerId === holder.containerId && actual.ifname === holder.ifname;
  });
  if (held.length === entries.length || holders) return held.map((entry) => ({ ...entry, holder }));
  view.list();
  return findAddressesOf(directory, view, holder);
}

/** Who holds an address, as far as that can be read. */
function tryReadHolder(directory: string, address: Ip): Holder | undefined {
  return ignoreSystemErrors(() => readHolderFile(`${directory}/${address}`));
}

/** From the first link on, the reservation is whole; a crash before the last leaves a part of the addresses to DEL. */
function linkReservation(
  directory: string,
  { query }: DirectoryView,
  reservation: PreparedReservation,
  addresses: readonly Ip[],
  lastReserved: LastReserved,
): void {
  const linked: Ip[] = [];
  const boot = currentBootTag();
  try {
    for (const address of addresses) {
      if (!hardLink(reservation.path, `${directory}/${address}`)) {
        query((index) => index.invalidate());
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
  query((index) => {
    for (const address of addresses) index.add(address, reservation.attachment, boot);
    index.commit();
  });
}

/** Under the lock, the last change of the directory; another file may have that name from an earlier reservation. */
function addHolderLink(directory: string, { path, isNamed, attachment }: PreparedReservation, boot: number): void {
  const name = holderLinkName(attachment, boot);
  const linkPath = `${directory}/${name}`;
  if (isNamed) {
    if (name === undefined) removeFile(path);
    else renameFile(path, linkPath);
  } else if (name !== undefined && !hardLink(path, linkPath)) {
    removeFile(linkPath);
    hardLink(path, linkPath);
  }
}

function addressAppearedError(directory: string, address: Ip): CniError {
  return new CniError(
    Code.TryAgainLater,
    `Cannot reserve address ${address}: "${directory}/${address}" appeared while "${directory}/lock" was locked`,
  );
}

function releaseAddresses(directory: string, { query }: DirectoryView, held: readonly HeldAddress[]): void {
  if (held.length === 0) return;
  const holderLinks = new Map<string, HeldAddress>();
  for (const heldAddress of held) {
    const { address, holder, bootTag } = heldAddress;
    removeFile(`${directory}/${address}`);
    query((index) => index.remove(address, holder));
    const name = holderLinkName(holder, bootTag);
    if (name !== undefined) holderLinks.set(name, heldAddress);
  }
  for (const [name, { holder, bootTag }] of holderLinks) {
    const remaining = query((index) => index.findByHolder(holder));
    if (!remaining.some((heldAddress) => heldAddress.bootTag === bootTag)) removeFile(`${directory}/${name}`);
  }
  query((index) => index.commit());
}
