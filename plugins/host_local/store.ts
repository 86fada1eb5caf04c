/**
 * Changing the reservations of a network, under its lock and so that a crash at any point leaves a whole reservation or none.
 *
 * @module
 */
import { type Ip, parseIp } from "../../ffi/address.ts";
import { findText, linkFile, removeFile, renameFile, replaceFile, writeTemporary } from "../../ffi/sys/file.ts";
import { findStatus } from "../../ffi/sys/status.ts";
import type { Attachment } from "../spec/config.ts";
import { CniError, Code } from "../spec/error.ts";
import { formatHolder, type Holder, indexName, type Inventory, readInventory } from "./inventory.ts";
import { acquireLock } from "./lock.ts";

/** Longer than any queue that still moves, and well below the two minutes a kubelet gives an ADD. */
const LOCK_TIMEOUT_MS = 10_000;
/** By then, whoever wrote it has long had its turn or given up. */
const TEMPORARY_MAX_AGE_MS = 5 * 60_000;

/** The reservations of one network, locked until its scope ends. */
export interface Store extends Disposable {
  readonly inventory: Inventory;
  /** The address that range set number `set` gave last; `undefined` if none is known. */
  findLastReserved(set: number): Ip | undefined;
  /** Makes the reservation hold these addresses, one per range set and in their order: all, or none if it throws. */
  reserve(reservation: Reservation, addresses: readonly Ip[]): void;
  /** Gives addresses back. */
  release(addresses: readonly Ip[]): void;
}

/** A reservation that is written and does not hold an address yet; given up when its scope ends. */
export interface Reservation extends Disposable {
  readonly path: string;
  readonly attachment: Attachment;
}

/** Writes a reservation to disk, where that may take its time: before the lock is taken. @throws {SystemError} */
export function prepareReservation(directory: string, attachment: Attachment): Reservation {
  const path = writeTemporary(`${directory}/new`, formatHolder(attachment));
  return { path, attachment, [Symbol.dispose]: () => void removeFile(path) };
}

/**
 * Locks the reservations in `directory`, which exists, and removes what crashes left there.
 *
 * @param log told of every file that is removed although it is not ours
 * @throws {CniError} code 11 if others hold the lock for longer than `timeoutMs`
 */
export function lockStore(directory: string, log: (message: string) => void, timeoutMs = LOCK_TIMEOUT_MS): Store {
  using resources = new DisposableStack();
  resources.use(acquireLock(`${directory}/lock`, timeoutMs));
  const inventory = readInventory(directory);
  recover(directory, inventory, log);
  const lock = resources.move();
  return {
    inventory,
    findLastReserved: (set) => findLastReserved(`${directory}/last_reserved_ip.${set}`, log),
    reserve: (reservation, addresses) => reserve(directory, reservation, addresses),
    release: (addresses) => release(directory, inventory, addresses),
    [Symbol.dispose]: () => lock.dispose(),
  };
}

/** The reference plugin writes a file after it created it, but under the lock: whoever sees an empty one there sees what a crash left. */
function recover(directory: string, inventory: Inventory, log: (message: string) => void): void {
  for (const { name, content } of inventory.broken) {
    const found = content === "" ? "it is empty" : `it holds ${JSON.stringify(content.slice(0, 80))}`;
    if (removeFile(`${directory}/${name}`)) {
      log(`Recovered address ${name}: "${directory}/${name}" named no container, ${found}`);
    }
  }
  for (const name of inventory.orphans) {
    const [containerId, ifname] = name.slice(1).split(":") as [string, string];
    const path = `${directory}/${name}`;
    if (findText(path) === formatHolder({ containerId, ifname })) removeFile(path);
  }
  for (const name of inventory.temporaries) {
    const path = `${directory}/${name}`;
    const status = findStatus(path);
    if (!status?.isFile || Date.now() - Number(status.modified / 1_000_000n) < TEMPORARY_MAX_AGE_MS) continue;
    if (removeFile(path)) log(`Removed "${path}": it was left by a process that ended before its time`);
  }
}

/** Only a hint where to go on, so what cannot be read is as good as nothing. */
function findLastReserved(path: string, log: (message: string) => void): Ip | undefined {
  const text = findText(path);
  if (text === undefined) return undefined;
  try {
    return parseIp(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    log(`Starting at the first address: "${path}" holds no address but ${JSON.stringify(text.slice(0, 80))}`);
    return undefined;
  }
}

/** From the first link on, the reservation is whole; a crash before the last leaves a part of the addresses to DEL. */
function reserve(directory: string, { path, attachment }: Reservation, addresses: readonly Ip[]): void {
  const done: Ip[] = [];
  try {
    for (const address of addresses) {
      if (!linkFile(path, `${directory}/${address}`)) throw changedError(directory, address);
      done.push(address);
    }
    for (const [set, address] of addresses.entries()) {
      replaceFile(`${directory}/last_reserved_ip.${set}`, address, 0o600, false);
    }
    const index = indexName(attachment);
    if (index !== undefined) renameFile(path, `${directory}/${index}`);
  } catch (error) {
    for (const address of done) removeFile(`${directory}/${address}`);
    throw error;
  }
}

function changedError(directory: string, address: Ip): CniError {
  return new CniError(
    Code.TryAgainLater,
    `Cannot reserve address ${address}: "${directory}/${address}" appeared while "${directory}/lock" was locked`,
  );
}

function release(directory: string, { holders }: Inventory, addresses: readonly Ip[]): void {
  const gone = new Set(addresses);
  const left = new Map<string, Holder>();
  for (const address of addresses) {
    removeFile(`${directory}/${address}`);
    const holder = holders.get(address);
    const index = holder && indexName(holder);
    if (index !== undefined) left.set(index, holder!);
  }
  const containers = new Set([...left.values()].map(({ containerId }) => containerId));
  for (const [address, holder] of holders) {
    if (holder && containers.has(holder.containerId) && !gone.has(address)) left.delete(indexName(holder) ?? "");
  }
  for (const index of left.keys()) removeFile(`${directory}/${index}`);
}
