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
import { SystemError, unlessFailed } from "../../ffi/sys/error.ts";
import { type Descriptor, openFile, removeFile, writeAll } from "../../ffi/sys/file.ts";
import { createForUpdate, openForUpdate, readAt, writeAt } from "../../ffi/sys/pread_pwrite.ts";
import { keyOf, PAGE_BYTES, PAGE_WORDS, type Pages, pagesFor, requireSealed, sealPage, type Table } from "./pages.ts";
import { currentBoot, type Holder, type Inventory } from "./inventory.ts";
import { addOwner, findOwned, type Owned, OWNER_WORDS, removeOwner } from "./holder_table.ts";
import { sealAnew, sealOf } from "./mtime_stamp.ts";
import { groupByNode, isTaken, mark, markGroup, nextFree, NODE_WORDS } from "./allocation_bitmap.ts";

// Of the form and of the hash function, which another version of the program may have changed.
const form = () => `host-local index 2 ${keyOf("host-local").low}`;

const ESTALE = 116;
/** From there on an index is too small, and making a larger one pays. */
const REACH = 4;

/** More than any network has addresses for, and few enough to be numbered in 32 bits. */
const MOST_PAGES = 2 ** 31;

/** What is known about the addresses of a network, kept by its user as the directory changes. */
export interface Index extends Disposable {
  /** When the directory was read, in milliseconds since 1970. */
  readonly listedAt: number;
  /** Whether some reservations may be of an earlier boot, for all that is known. */
  mayHaveEarlier(): boolean;
  /** Notes that none is. */
  settle(): void;
  /** Addresses that this holder may have: a hash of its names fits. */
  findOwned(holder: Holder): Owned[];
  isTaken(address: Ip): boolean;
  /** The first free address from `from` on, of its family. */
  findFree(from: Ip): Ip | undefined;
  /** @param boot mark of the boot in which it was reserved, 0 if that is not known */
  add(address: Ip, holder: Holder, boot: number): void;
  remove(address: Ip, holder: Holder): void;
  /** Has the index hold for the directory as it is now. Where that cannot be, the next one who needs it lists the directory. */
  commit(): void;
  /** Has the next one list the directory. */
  forget(): void;
}

/** Pages 1… are the owners, after them come the nodes of the taken addresses. */
interface Layout {
  readonly ownerPages: number;
  readonly takenPages: number;
  /** Whether some reservations name no interface. */
  readonly hasOld: boolean;
  readonly listedAt: number;
  /** See {@linkcode Index.mayHaveEarlier}. */
  mayHaveEarlier: boolean;
}

interface PageSet extends Pages {
  /** Those that were changed, which are none after that. */
  takeChanged(): [number: number, page: Uint32Array][];
}

/** The index of `directory`, `undefined` if there is none that holds. @throws {SystemError} if there is no directory */
export function openIndex(directory: string): Index | undefined {
  using resources = new DisposableStack();
  const opened = resources.use(openFile(directory));
  return unlessFailed(() => {
    const file = resources.use(openForUpdate(pathOf(directory)));
    const boot = bootId();
    const layout = readLayout(file.fd, sealOf(opened.fd, boot));
    if (!layout) return undefined;
    const pages = pageSet((number) => readPage(file.fd, number));
    const commit = () => writeChanged({ directory: opened.fd, file: file.fd, boot, layout, pages });
    return newIndex(directory, layout, pages, commit, resources.move());
  });
}

/**
 * Makes the index of what `list` finds in `directory`, and the file of it, if `directory` stays meanwhile as it is.
 *
 * Where it changes, or the file cannot be written, this index is as good, and the next one who needs one makes it again.
 */
export function makeIndex(
  directory: string,
  list: () => Inventory,
): { readonly index: Index; readonly all: Inventory } {
  using resources = new DisposableStack();
  const opened = resources.use(openFile(directory));
  const boot = unlessFailed(bootId);
  const seal = boot && unlessFailed(() => sealAnew(opened.fd, boot));
  const all = list();
  const { layout, image, pages } = newImage(all);
  const file = seal && unlessFailed(() => {
    const created = resources.use(createAnew(pathOf(directory)));
    writeImage(created.fd, image);
    if (sealOf(opened.fd, boot) !== seal) throw new SystemError("futimens", ESTALE);
    writeLayout(created.fd, seal, layout);
    return created.fd;
  });
  // What is half written helps nobody, and the disk may be full.
  if (!file) unlessFailed(() => removeFile(pathOf(directory)));
  const commit = () => file && boot && writeChanged({ directory: opened.fd, file, boot, layout, pages });
  return { index: newIndex(directory, layout, pages, commit, resources.move()), all };
}

function newIndex(
  directory: string,
  layout: Layout,
  pages: PageSet,
  commit: () => void,
  resources: Disposable,
): Index {
  const { owners, taken } = tablesOf(pages, layout, REACH);
  let isWhole = true;
  // The directory is changed by then: what cannot be noted is found by the next one who lists it.
  const note = (action: () => void) => void (isWhole &&= unlessFailed(() => (action(), true)) ?? false);
  return {
    listedAt: layout.listedAt,
    mayHaveEarlier: () => layout.mayHaveEarlier,
    settle() {
      layout.mayHaveEarlier = false;
      note(commit);
    },
    findOwned: (holder) => holder.ifname === undefined && !layout.hasOld ? [] : findOwned(owners, holder),
    isTaken: (address) => isTaken(taken, ipBytes(address)),
    findFree(from) {
      const free = nextFree(taken, ipBytes(from));
      return free && ipFromBytes(free);
    },
    add: (address, holder, boot) =>
      note(() => {
        const bytes = ipBytes(address);
        addOwner(owners, holder, bytes, boot);
        mark(taken, bytes, true);
      }),
    remove: (address, holder) =>
      note(() => {
        const bytes = ipBytes(address);
        removeOwner(owners, holder, bytes);
        mark(taken, bytes, false);
      }),
    commit: () => note(commit),
    forget: () => void unlessFailed(() => removeFile(pathOf(directory))),
    [Symbol.dispose]: () => resources[Symbol.dispose](),
  };
}

/** Beside the directory, since the reference plugin walks all that is in it; hidden, since names of networks begin with a letter or digit. */
function pathOf(directory: string): string {
  const slash = directory.lastIndexOf("/") + 1;
  return `${directory.slice(0, slash)}.${directory.slice(slash)}.index`;
}

function readLayout(fd: number, seal: string): Layout | undefined {
  const buffer = new Uint8Array(512);
  readAt(fd, 0, buffer);
  const [is, about, numbers = ""] = new TextDecoder().decode(buffer).split("\n");
  if (is !== form() || about !== seal) return undefined;
  const [ownerPages = 0, takenPages = 0, hasOld, mayHaveEarlier, listedAt = 0] = numbers.split(" ").map(Number);
  // Whoever wrote that is another.
  if (!isCount(ownerPages) || !isCount(takenPages)) return undefined;
  return { ownerPages, takenPages, hasOld: hasOld !== 0, listedAt, mayHaveEarlier: mayHaveEarlier !== 0 };
}

const isCount = (pages: number): boolean => Number.isInteger(pages) && pages > 0 && pages < MOST_PAGES;

/** In one write, as the last one. */
function writeLayout(fd: number, seal: string, layout: Layout): void {
  const { ownerPages, takenPages, hasOld, listedAt, mayHaveEarlier } = layout;
  const numbers = [ownerPages, takenPages, Number(hasOld), Number(mayHaveEarlier), listedAt];
  const text = `${form()}\n${seal}\n${numbers.join(" ")}\n`;
  const buffer = new Uint8Array(512);
  new TextEncoder().encodeInto(text, buffer);
  writeAt(fd, 0, buffer);
}

function readPage(fd: number, number: number): Uint32Array {
  const page = new Uint32Array(PAGE_WORDS);
  readAt(fd, number * PAGE_BYTES, new Uint8Array(page.buffer));
  requireSealed(page, number);
  return page;
}

interface Written {
  /** File descriptors. */
  readonly directory: number;
  readonly file: number;
  readonly boot: string;
  readonly layout: Layout;
  readonly pages: PageSet;
}

function writeChanged({ directory, file, boot, layout, pages }: Written): void {
  // First: from here on the old first page is void, even if the directory were as before.
  const seal = sealAnew(directory, boot);
  for (const [number, page] of pages.takeChanged()) {
    sealPage(page, number);
    writeAt(file, number * PAGE_BYTES, new Uint8Array(page.buffer, page.byteOffset, PAGE_BYTES));
  }
  if (sealOf(directory, boot) !== seal) throw new SystemError("futimens", ESTALE);
  writeLayout(file, seal, layout);
}

type Sizes = Pick<Layout, "ownerPages" | "takenPages">;

function tablesOf(pages: Pages, { ownerPages, takenPages }: Sizes, reach: number): { owners: Table; taken: Table } {
  return {
    owners: { pages, first: 1, count: ownerPages, slotWords: OWNER_WORDS, reach },
    taken: { pages, first: 1 + ownerPages, count: takenPages, slotWords: NODE_WORDS, reach },
  };
}

function pageSet(read: (number: number) => Uint32Array): PageSet {
  const known = new Map<number, Uint32Array>();
  const changed = new Set<number>();
  return {
    load(number) {
      const page = known.get(number) ?? read(number);
      known.set(number, page);
      return page;
    },
    touch: (number) => void changed.add(number),
    takeChanged() {
      const list = [...changed].map((number): [number, Uint32Array] => [number, known.get(number)!]);
      changed.clear();
      return list;
    },
  };
}

/** The pages of an index, in memory. */
function newImage({ holders, boots }: Inventory): { layout: Layout; image: Uint32Array; pages: PageSet } {
  const addresses = [...holders.keys()].map(ipBytes);
  const ownerPages = pagesFor(holders.size, OWNER_WORDS);
  const groups = groupByNode(addresses);
  const takenPages = pagesFor(groups.length, NODE_WORDS);
  const image = new Uint32Array((1 + ownerPages + takenPages) * PAGE_WORDS);
  const pages = pageSet((number) => image.subarray(number * PAGE_WORDS, (number + 1) * PAGE_WORDS));
  const current = currentBoot();
  let hasOld = false;
  let mayHaveEarlier = false;
  const tables = tablesOf(pages, { ownerPages, takenPages }, Infinity);
  let at = 0;
  for (const [ip, holder] of holders) {
    const address = addresses[at++]!;
    if (!holder) continue;
    const boot = boots.get(ip) ?? 0;
    addOwner(tables.owners, holder, address, boot);
    if (boot !== current) mayHaveEarlier = true;
    if (holder.ifname === undefined) hasOld = true;
  }
  for (const group of groups) markGroup(tables.taken, group);
  pages.takeChanged();
  return { layout: { ownerPages, takenPages, hasOld, listedAt: Date.now(), mayHaveEarlier }, image, pages };
}

function writeImage(fd: number, image: Uint32Array): void {
  for (let number = 1; number < image.length / PAGE_WORDS; number++) {
    sealPage(image.subarray(number * PAGE_WORDS, (number + 1) * PAGE_WORDS), number);
  }
  writeAll(fd, new Uint8Array(image.buffer));
}

/** In place of whatever bears the name, save a directory. */
function createAnew(path: string): Descriptor {
  removeFile(path);
  return createForUpdate(path);
}
