/**
 * Changing the reservations of a network, under its lock and so that a crash at any point leaves a whole reservation or none.
 *
 * @module
 */
import { type Ip, parseIp } from "../../ffi/address.ts";
import { SystemError, unless, unlessFailed } from "../../ffi/sys/error.ts";
import {
  findText,
  linkFile,
  NO_FILE,
  removeFile,
  renameFile,
  replaceFile,
  writeTemporary,
  writeUnnamed,
} from "../../ffi/sys/file.ts";
import { lockFile } from "../../ffi/sys/lock.ts";
import { findLink, findStatus } from "../../ffi/sys/stat.ts";
import { tryAgainLater } from "../lib/protocol/lock_wait.ts";
import type { Attachment } from "../../spec/plugin_config.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { Usage } from "./allocate.ts";
import { type Index, makeIndex, openIndex } from "./reservation_index.ts";
import {
  currentBoot,
  findHolder,
  formatHolder,
  type Held,
  type Holder,
  indexName,
  type Inventory,
  readInventory,
} from "./inventory.ts";
import { describeReclaimed, findEarlier, recover } from "./recovery.ts";

/** Longer than any queue that still moves, and well below the two minutes a kubelet gives an ADD. */
const LOCK_TIMEOUT_MS = 10_000;
/** For so long a list of the directory is good enough to refuse somebody: a full network is asked again and again. */
const LIST_MAX_AGE_MS = 60_000;

/** The reservations of one network, locked until its scope ends. */
export interface Store extends Usage, Disposable {
  /** What an attachment holds, from old versions if there is nothing else. */
  findHeld(attachment: Attachment): Held[];
  /** Everything, as the directory has it. */
  list(): Inventory;
  /**
   * Runs `choose`, which changes nothing; what it refuses, it refuses for what is in the directory and not in the index alone, and for
   * what is not of an earlier boot: such reservations are given up first, and that is said.
   */
  decide<T>(choose: () => T): T;
  /** Makes the reservation hold these addresses, one per range set and in their order: all, or none if it throws. */
  reserve(reservation: Reservation, addresses: readonly Ip[]): void;
  /** Gives addresses back. */
  release(held: readonly Held[]): void;
}

/** A reservation that is written and does not hold an address yet; given up when its scope ends. */
export interface Reservation extends Disposable {
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
export function hasDirectory(directory: string, log: (message: string) => void): boolean {
  if (findStatus(directory, false)?.isDirectory) return true;
  if (findLink(directory) !== undefined) {
    log(`"${directory}" is a symbolic link, which is not followed; going on without it`);
  }
  return false;
}

/** Says so if a call fails since it follows no link. */
function explainingLink<T>(directory: string, call: () => T): T {
  try {
    return call();
  } catch (error) {
    const isRefused = error instanceof SystemError && (error.code === "ENOTDIR" || error.code === "ELOOP");
    if (!isRefused || findLink(directory) === undefined) throw error;
    const remark = "it is a symbolic link, which is not followed: remove it, or put what it leads to in its place";
    throw new SystemError(error.syscall, error.errno, `write to directory "${directory}"`, remark);
  }
}

/** Writes a reservation to disk, where that may take its time: before the lock is taken. @throws {SystemError} */
export function prepareReservation(directory: string, attachment: Attachment): Reservation {
  const content = formatHolder(attachment);
  // Without a name it leaves the directory as it is, and the index with it, and is gone after a crash.
  const unnamed = explainingLink(directory, () => writeUnnamed(directory, content));
  if (unnamed) return { ...unnamed, isNamed: false, attachment };
  const path = writeTemporary(`${directory}/new`, content);
  return { path, isNamed: true, attachment, [Symbol.dispose]: () => void removeFile(path) };
}

/** Makes sure that a reservation could be written. @throws {SystemError} */
export function tryReservation(directory: string): void {
  const unnamed = explainingLink(directory, () => writeUnnamed(directory, "", 0o600, false));
  if (unnamed) unnamed[Symbol.dispose]();
  else removeFile(writeTemporary(`${directory}/status`, "", 0o600, false));
}

/**
 * Locks the reservations in `directory`, which exists, as the reference plugin does; if they have to be listed, it removes what crashes left
 * there.
 *
 * @param log told of every file that is removed although it is not ours
 * @throws {CniError} code 11 naming who holds the lock for longer than `timeoutMs`
 */
export function lockStore(directory: string, log: (message: string) => void, timeoutMs = LOCK_TIMEOUT_MS): Store {
  using resources = new DisposableStack();
  resources.use(tryAgainLater(() => lockFile(`${directory}/lock`, { timeoutMs })));
  const records = openRecords(directory, log);
  resources.use(records);
  const lock = resources.move();
  const { ask } = records;
  return {
    isTaken: (address) => ask((index) => index.isTaken(address)),
    findFree: (from) => ask((index) => index.findFree(from)),
    findHolder: (address) => holderAt(directory, address),
    findLastReserved: (set) => findLastReserved(`${directory}/last_reserved_ip.${set}`, log),
    findHeld({ containerId, ifname }) {
      const own = findHeldBy(directory, records, { containerId, ifname });
      return own.length > 0 ? own : findHeldBy(directory, records, { containerId });
    },
    list: records.list,
    decide: (choose) => decide(records, () => reclaim(directory, records, log), choose),
    reserve: (reservation, addresses) => reserve(directory, records, reservation, addresses, log),
    release: (held) => release(directory, records, held),
    [Symbol.dispose]: () => lock.dispose(),
  };
}

/** What is known of the directory: by its index, and from the first doubt on by a list of it. */
interface Records extends Disposable {
  /** When the directory was listed; `undefined` if that was for this call. */
  readonly listedAt: number | undefined;
  list(): Inventory;
  /** An index that cannot be read is replaced. */
  ask<T>(question: (index: Index) => T): T;
}

function openRecords(directory: string, log: (message: string) => void): Records {
  let index = openIndex(directory);
  let inventory: Inventory | undefined;
  const close = () => {
    index?.[Symbol.dispose]();
    index = undefined;
  };
  const list = (): Inventory => {
    if (inventory) return inventory;
    close();
    const made = makeIndex(directory, () => recover(directory, readInventory(directory), log));
    index = made.index;
    return inventory = made.all;
  };
  const current = (): Index => index ?? (list(), index!);
  current();
  return {
    get listedAt() {
      return inventory ? undefined : current().listedAt;
    },
    list,
    ask(question) {
      try {
        return question(current());
      } catch (error) {
        if (inventory || !(error instanceof SystemError)) throw error;
        list();
        return question(current());
      }
    },
    [Symbol.dispose]: close,
  };
}

/** @param reclaim gives up what cannot be needed any more; false if there was nothing */
function decide<T>(records: Records, reclaim: () => boolean, choose: () => T): T {
  const remedies = [() => listAnew(records), reclaim];
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
function listAnew({ listedAt, list }: Records): boolean {
  if (listedAt === undefined || Math.abs(Date.now() - listedAt) < LIST_MAX_AGE_MS) return false;
  list();
  return true;
}

/** No namespace outlives its boot, so nobody has the addresses that were reserved in an earlier one. */
function reclaim(directory: string, records: Records, log: (message: string) => void): boolean {
  if (!records.ask((index) => index.mayHaveEarlier())) return false;
  const earlier = findEarlier(directory, records.list());
  release(directory, records, earlier);
  records.ask((index) => index.settle());
  if (earlier.length === 0) return false;
  log(describeReclaimed(earlier));
  return true;
}

/** What the index says and the directory confirms. */
function findHeldBy(directory: string, records: Records, holder: Holder): Held[] {
  const owned = records.ask((index) => index.findOwned(holder));
  // A file can be damaged; a list tells by its second name whose it is.
  const listed = records.listedAt === undefined ? records.list().holders : undefined;
  const held = owned.filter(({ address }) => {
    const found = listed?.get(address) ?? holderAt(directory, address);
    return found?.containerId === holder.containerId && found.ifname === holder.ifname;
  });
  if (held.length === owned.length || listed) return held.map((each) => ({ ...each, holder }));
  records.list();
  return findHeldBy(directory, records, holder);
}

/** Who holds an address, as far as that can be read. */
function holderAt(directory: string, address: Ip): Holder | undefined {
  return unlessFailed(() => findHolder(`${directory}/${address}`));
}

/** Only a hint where to go on, so what cannot be read is as good as nothing. */
function findLastReserved(path: string, log: (message: string) => void): Ip | undefined {
  const text = unless(NO_FILE, () => findText(path));
  if (text === undefined) return undefined;
  try {
    return parseIp(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    log(`Starting at the first address: "${path}" holds no address but ${JSON.stringify(text.slice(0, 80))}`);
    return undefined;
  }
}

/** See {@linkcode findLastReserved}: a directory that somebody put there is in nobody's way. */
function noteLastReserved(path: string, address: Ip, log: (message: string) => void): void {
  try {
    replaceFile(path, address, 0o600, false);
  } catch (error) {
    if (!(error instanceof SystemError && error.code === "EISDIR")) throw error;
    log(`${error.message}; going on without it`);
  }
}

/** From the first link on, the reservation is whole; a crash before the last leaves a part of the addresses to DEL. */
function reserve(
  directory: string,
  { ask }: Records,
  reservation: Reservation,
  addresses: readonly Ip[],
  log: (message: string) => void,
): void {
  const done: Ip[] = [];
  const boot = currentBoot();
  try {
    for (const address of addresses) {
      if (!linkFile(reservation.path, `${directory}/${address}`)) {
        ask((index) => index.forget());
        throw changedError(directory, address);
      }
      done.push(address);
    }
    for (const [set, address] of addresses.entries()) {
      noteLastReserved(`${directory}/last_reserved_ip.${set}`, address, log);
    }
    giveSecondName(directory, reservation, boot);
  } catch (error) {
    for (const address of done) removeFile(`${directory}/${address}`);
    throw error;
  }
  ask((index) => {
    for (const address of addresses) index.add(address, reservation.attachment, boot);
    index.commit();
  });
}

/** Under the lock, the last change of the directory; another file may have that name from an earlier reservation. */
function giveSecondName(directory: string, { path, isNamed, attachment }: Reservation, boot: number): void {
  const name = indexName(attachment, boot);
  const second = `${directory}/${name}`;
  if (isNamed) {
    if (name === undefined) removeFile(path);
    else renameFile(path, second);
  } else if (name !== undefined && !linkFile(path, second)) {
    removeFile(second);
    linkFile(path, second);
  }
}

function changedError(directory: string, address: Ip): CniError {
  return new CniError(
    Code.TryAgainLater,
    `Cannot reserve address ${address}: "${directory}/${address}" appeared while "${directory}/lock" was locked`,
  );
}

function release(directory: string, { ask }: Records, held: readonly Held[]): void {
  if (held.length === 0) return;
  const seconds = new Map<string, Held>();
  for (const each of held) {
    const { address, holder, boot } = each;
    removeFile(`${directory}/${address}`);
    ask((index) => index.remove(address, holder));
    const name = indexName(holder, boot);
    if (name !== undefined) seconds.set(name, each);
  }
  for (const [name, { holder, boot }] of seconds) {
    const others = ask((index) => index.findOwned(holder));
    if (!others.some((each) => each.boot === boot)) removeFile(`${directory}/${name}`);
  }
  ask((index) => index.commit());
}
