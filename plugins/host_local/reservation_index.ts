/**
 * The index of a network's directory: a file beside it that tells what an attachment holds and which address is free, so that
 * nothing else has to be read, however many reservations there are.
 *
 * The directory alone says what is reserved. The index is believed only while the directory bears the seal that the first page of
 * the index names, beside the boot, since pages of an earlier one need not all have reached the disk. The first change breaks the
 * seal, whoever makes it; the first page is written after all others. So whoever is killed on the way leaves an index that is void.
 *
 * All of this happens under the lock of the directory, which the reference plugin takes as well. A program that does not, and
 * creates or removes a file in the millisecond in which we change another, is noticed by the next change, GC or boot; until then
 * a file decides wherever one is at hand: no address is given twice. Only names are watched: nobody writes into a reservation.
 *
 * @module
 */
import { type Ip, ipBytes, ipFromBytes } from "../../ffi/address.ts";
import { bootId } from "../../ffi/sys/boot.ts";
import { ignoreSystemErrors } from "../../ffi/sys/error.ts";
import {
  createReadWrite,
  type Descriptor,
  openFile,
  openReadWrite,
  pread,
  pwrite,
  removeFile,
  writeAll,
} from "../../ffi/sys/file.ts";
import {
  hashKey,
  type HashTable,
  PAGE_BYTES,
  PAGE_WORDS,
  type PageCache,
  pageCountFor,
  requireChecksum,
  writeChecksum,
} from "./paged_hash_table.ts";
import { currentBootTag, type Holder, type Inventory } from "./inventory.ts";
import {
  addHolderAddress,
  findHolderAddresses,
  HOLDER_SLOT_WORDS,
  type HolderEntry,
  removeHolderAddress,
} from "./holder_table.ts";
import { readRenewedStamp, readStamp, renewStamp } from "./mtime_stamp.ts";
import {
  findNextFree,
  groupByNode,
  isAllocated,
  NODE_SLOT_WORDS,
  setAllocated,
  setGroupAllocated,
} from "./allocation_bitmap.ts";

// Of the form and of the hash function, which another version of the program may have changed.
const formatVersion = () => `host-local index 2 ${hashKey("host-local").low}`;

/** From there on an index is too small, and making a larger one pays. */
const MAX_PROBES = 4;

/** More than any network has addresses for, and few enough to be numbered in 32 bits. */
const MAX_PAGES = 2 ** 31;

/** What is known about the addresses of a network, kept by its user as the directory changes. */
export interface ReservationIndex extends Disposable {
  /** When the directory was read, in milliseconds since 1970. */
  readonly listedAt: number;
  /** Whether some reservations may be of an earlier boot, for all that is known. */
  mayHaveEarlierBoot(): boolean;
  /** Notes that none is. */
  clearEarlierBoot(): void;
  /** Addresses that this holder may have: a hash of its names fits. */
  findByHolder(holder: Holder): HolderEntry[];
  isAllocated(address: Ip): boolean;
  /** The first free address from `from` on, of its family. */
  findFree(from: Ip): Ip | undefined;
  /** @param boot mark of the boot in which it was reserved, 0 if that is not known */
  add(address: Ip, holder: Holder, boot: number): void;
  remove(address: Ip, holder: Holder): void;
  /** Has the index hold for the directory as it is now. Where that cannot be, the next one who needs it lists the directory. */
  commit(): void;
  /** Has the next one list the directory. */
  invalidate(): void;
}

/** Pages 1… are the owners, after them come the nodes of the taken addresses. */
interface IndexHeader {
  readonly holderPages: number;
  readonly bitmapPages: number;
  /** Whether some reservations name no interface. */
  readonly hasLegacy: boolean;
  readonly listedAt: number;
  /** See {@linkcode ReservationIndex.mayHaveEarlierBoot}. */
  mayHaveEarlierBoot: boolean;
}

interface DirtyPageCache extends PageCache {
  /** Those that were changed, which are none after that. */
  takeDirty(): [number: number, page: Uint32Array][];
}

/** The index of `directory`, `undefined` if there is none that holds. @throws {SystemError} if there is no directory */
export function openIndex(directory: string): ReservationIndex | undefined {
  using resources = new DisposableStack();
  const opened = resources.use(openFile(directory));
  return ignoreSystemErrors(() => {
    const file = resources.use(openReadWrite(indexPath(directory)));
    const boot = bootId();
    const header = readHeader(file.fd, readStamp(opened.fd, boot));
    if (!header) return undefined;
    const pages = createPageCache((number) => readPage(file.fd, number));
    const commit = () => writeDirtyPages({ directory: opened.fd, file: file.fd, boot, header, pages });
    return createIndex(directory, header, pages, commit, resources.move());
  });
}

/**
 * Makes the index of what `list` finds in `directory`, and the file of it, if `directory` stays meanwhile as it is.
 *
 * Where it changes, or the file cannot be written, this index is as good, and the next one who needs one makes it again.
 */
export function rebuildIndex(
  directory: string,
  list: () => Inventory,
): { readonly index: ReservationIndex; readonly all: Inventory } {
  using resources = new DisposableStack();
  const opened = resources.use(openFile(directory));
  const boot = ignoreSystemErrors(bootId);
  const time = boot && ignoreSystemErrors(() => renewStamp(opened.fd));
  const inventory = list();
  const { layout: header, image, pages } = buildImage(inventory);
  const file = boot && time && ignoreSystemErrors(() => {
    const created = resources.use(recreateFile(indexPath(directory)));
    writeImage(created.fd, image);
    writeHeader(created.fd, readRenewedStamp(opened.fd, boot, time), header);
    return created.fd;
  });
  // What is half written helps nobody, and the disk may be full.
  if (!file) ignoreSystemErrors(() => removeFile(indexPath(directory)));
  const commit = () => file && boot && writeDirtyPages({ directory: opened.fd, file, boot, header, pages });
  return { index: createIndex(directory, header, pages, commit, resources.move()), all: inventory };
}

function createIndex(
  directory: string,
  header: IndexHeader,
  pages: DirtyPageCache,
  commit: () => void,
  resources: Disposable,
): ReservationIndex {
  const { owners: holders, taken: bitmap } = hashTables(pages, header, MAX_PROBES);
  let isIntact = true;
  // The directory is changed by then: what cannot be noted is found by the next one who lists it.
  const attemptUpdate = (action: () => void) => void (isIntact &&= ignoreSystemErrors(() => (action(), true)) ?? false);
  return {
    listedAt: header.listedAt,
    mayHaveEarlierBoot: () => header.mayHaveEarlierBoot,
    clearEarlierBoot() {
      header.mayHaveEarlierBoot = false;
      attemptUpdate(commit);
    },
    findByHolder: (holder) =>
      holder.ifname === undefined && !header.hasLegacy ? [] : findHolderAddresses(holders, holder),
    isAllocated: (address) => isAllocated(bitmap, ipBytes(address)),
    findFree(from) {
      const free = findNextFree(bitmap, ipBytes(from));
      return free && ipFromBytes(free);
    },
    add: (address, holder, boot) =>
      attemptUpdate(() => {
        const bytes = ipBytes(address);
        addHolderAddress(holders, holder, bytes, boot);
        setAllocated(bitmap, bytes, true);
      }),
    remove: (address, holder) =>
      attemptUpdate(() => {
        const bytes = ipBytes(address);
        removeHolderAddress(holders, holder, bytes);
        setAllocated(bitmap, bytes, false);
      }),
    commit: () => attemptUpdate(commit),
    invalidate: () => void ignoreSystemErrors(() => removeFile(indexPath(directory))),
    [Symbol.dispose]: () => resources[Symbol.dispose](),
  };
}

/** Beside the directory, since the reference plugin walks all that is in it; hidden, since names of networks begin with a letter or digit. */
function indexPath(directory: string): string {
  const slash = directory.lastIndexOf("/") + 1;
  return `${directory.slice(0, slash)}.${directory.slice(slash)}.index`;
}

function readHeader(fd: number, stamp: string): IndexHeader | undefined {
  const buffer = new Uint8Array(512);
  pread(fd, 0, buffer);
  const [version, storedStamp, numbers = ""] = new TextDecoder().decode(buffer).split("\n");
  if (version !== formatVersion() || storedStamp !== stamp) return undefined;
  const [holderPages = 0, bitmapPages = 0, hasLegacy, mayHaveEarlierBoot, listedAt = 0] = numbers.split(" ").map(
    Number,
  );
  // Whoever wrote that is another.
  if (!isPageCount(holderPages) || !isPageCount(bitmapPages)) return undefined;
  return {
    holderPages,
    bitmapPages,
    hasLegacy: hasLegacy !== 0,
    listedAt,
    mayHaveEarlierBoot: mayHaveEarlierBoot !== 0,
  };
}

const isPageCount = (pages: number): boolean => Number.isInteger(pages) && pages > 0 && pages < MAX_PAGES;

/** In one write, as the last one. */
function writeHeader(fd: number, stamp: string, header: IndexHeader): void {
  const { holderPages, bitmapPages, hasLegacy, listedAt, mayHaveEarlierBoot } = header;
  const numbers = [holderPages, bitmapPages, Number(hasLegacy), Number(mayHaveEarlierBoot), listedAt];
  const text = `${formatVersion()}\n${stamp}\n${numbers.join(" ")}\n`;
  const buffer = new Uint8Array(512);
  new TextEncoder().encodeInto(text, buffer);
  pwrite(fd, 0, buffer);
}

function readPage(fd: number, number: number): Uint32Array {
  const page = new Uint32Array(PAGE_WORDS);
  pread(fd, number * PAGE_BYTES, new Uint8Array(page.buffer));
  requireChecksum(page, number);
  return page;
}

interface WriteTarget {
  /** File descriptors. */
  readonly directory: number;
  readonly file: number;
  readonly boot: string;
  readonly header: IndexHeader;
  readonly pages: DirtyPageCache;
}

function writeDirtyPages({ directory, file, boot, header, pages }: WriteTarget): void {
  // First: from here on the old first page is void, even if the directory were as before.
  const time = renewStamp(directory);
  for (const [number, page] of pages.takeDirty()) {
    writeChecksum(page, number);
    pwrite(file, number * PAGE_BYTES, new Uint8Array(page.buffer, page.byteOffset, PAGE_BYTES));
  }
  writeHeader(file, readRenewedStamp(directory, boot, time), header);
}

type TableSizes = Pick<IndexHeader, "holderPages" | "bitmapPages">;

function hashTables(
  pages: PageCache,
  { holderPages, bitmapPages }: TableSizes,
  maxProbes: number,
): { owners: HashTable; taken: HashTable } {
  return {
    owners: { pages, first: 1, count: holderPages, slotWords: HOLDER_SLOT_WORDS, maxProbes },
    taken: { pages, first: 1 + holderPages, count: bitmapPages, slotWords: NODE_SLOT_WORDS, maxProbes },
  };
}

function createPageCache(read: (number: number) => Uint32Array): DirtyPageCache {
  const loaded = new Map<number, Uint32Array>();
  const dirty = new Set<number>();
  return {
    load(number) {
      const page = loaded.get(number) ?? read(number);
      loaded.set(number, page);
      return page;
    },
    markDirty: (number) => void dirty.add(number),
    takeDirty() {
      const entries = [...dirty].map((number): [number, Uint32Array] => [number, loaded.get(number)!]);
      dirty.clear();
      return entries;
    },
  };
}

/** The pages of an index, in memory. */
function buildImage(
  { holders, bootTags }: Inventory,
): { layout: IndexHeader; image: Uint32Array; pages: DirtyPageCache } {
  const addresses = [...holders.keys()].map(ipBytes);
  const holderPages = pageCountFor(holders.size, HOLDER_SLOT_WORDS);
  const groups = groupByNode(addresses);
  const bitmapPages = pageCountFor(groups.length, NODE_SLOT_WORDS);
  const image = new Uint32Array((1 + holderPages + bitmapPages) * PAGE_WORDS);
  const pages = createPageCache((number) => image.subarray(number * PAGE_WORDS, (number + 1) * PAGE_WORDS));
  const currentTag = currentBootTag();
  let hasLegacy = false;
  let mayHaveEarlierBoot = false;
  const tables = hashTables(pages, { holderPages, bitmapPages }, Infinity);
  let index = 0;
  for (const [ip, holder] of holders) {
    const address = addresses[index++]!;
    if (!holder) continue;
    const boot = bootTags.get(ip) ?? 0;
    addHolderAddress(tables.owners, holder, address, boot);
    if (boot !== currentTag) mayHaveEarlierBoot = true;
    if (holder.ifname === undefined) hasLegacy = true;
  }
  for (const group of groups) setGroupAllocated(tables.taken, group);
  pages.takeDirty();
  return { layout: { holderPages, bitmapPages, hasLegacy, listedAt: Date.now(), mayHaveEarlierBoot }, image, pages };
}

function writeImage(fd: number, image: Uint32Array): void {
  for (let number = 1; number < image.length / PAGE_WORDS; number++) {
    writeChecksum(image.subarray(number * PAGE_WORDS, (number + 1) * PAGE_WORDS), number);
  }
  writeAll(fd, new Uint8Array(image.buffer));
}

/** In place of whatever bears the name, save a directory. */
function recreateFile(path: string): Descriptor {
  removeFile(path);
  return createReadWrite(path);
}
