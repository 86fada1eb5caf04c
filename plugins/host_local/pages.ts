/**
 * Hash tables in pages of a file: whatever their size, a key is found by reading one page, and changed by writing it.
 *
 * A page starts with its checksum, its number and the count of its slots, which follow without a gap. What does not fit into a
 * page is in the next one; a table is made large enough for that to be rare.
 *
 * @module
 */
import { SystemError } from "../../ffi/sys/error.ts";

export const PAGE_BYTES = 4096;
export const PAGE_WORDS = PAGE_BYTES / 4;
// Places of the words in front of the slots.
const CHECKSUM = 0;
const NUMBER = 1;
const COUNT = 2;
/** Set for ever once a slot had to go to the next page. */
const GOES_ON = 3;
const EIO = 5;
const ENOSPC = 28;

/** Pages as they are read and changed. */
export interface Pages {
  /** The page of this number, the same array every time. @throws {SystemError} `EIO` if it is damaged */
  load(number: number): Uint32Array;
  /** Tells that the page was changed. */
  touch(number: number): void;
}

/** A hash table: `count` pages from number `first` on. */
export interface Table {
  readonly pages: Pages;
  readonly first: number;
  readonly count: number;
  /** Two for the key, the rest is the user's. A page keeps the room of the first slot to itself. */
  readonly slotWords: number;
  /** In how many pages a new slot may look for room. */
  readonly reach: number;
}

/** 64 bits that stand for something longer. */
export interface Key {
  readonly low: number;
  readonly high: number;
}

/** One entry: its words, as a view of the page that holds them. */
export interface Slot {
  readonly page: number;
  readonly words: Uint32Array;
}

/** By two functions that give numbers: taking a bigint to pieces takes longer than both. */
export function keyOf(what: string | Uint8Array): Key {
  return { low: Bun.hash.xxHash32(what), high: Bun.hash.murmur32v3(what) };
}

/** A number of pages that so many slots fill to the half, since every ADD may bring one more. */
export function pagesFor(slots: number, slotWords: number): number {
  return 1 + Math.ceil(slots / (PAGE_WORDS / slotWords / 2));
}

/** The number of the page that may hold a key after `before` others were full; most of the time the first is all there is. */
function pageNumber({ first, count }: Table, { low }: Key, before: number): number {
  return first + (Math.floor(low / 2 ** 32 * count) + before) % count;
}

/** The slots of a key. */
export function findSlots(table: Table, key: Key): Slot[] {
  const { pages, slotWords } = table;
  const found: Slot[] = [];
  for (let i = 0; i < table.count; i++) {
    const number = pageNumber(table, key, i);
    const page = pages.load(number);
    const end = (page[COUNT]! + 1) * slotWords;
    for (let at = page.indexOf(key.low, slotWords); at >= 0 && at < end; at = page.indexOf(key.low, at + 1)) {
      if (at % slotWords !== 0 || page[at + 1] !== key.high) continue;
      found.push({ page: number, words: page.subarray(at, at + slotWords) });
    }
    if (page[GOES_ON] === 0) break;
  }
  return found;
}

/** A new slot, all zeros behind the key. @throws {SystemError} `ENOSPC` if there is none within reach: the table is too small by now */
export function addSlot(table: Table, key: Key): Slot {
  const { pages, slotWords } = table;
  for (let i = 0; i < Math.min(table.count, table.reach); i++) {
    const number = pageNumber(table, key, i);
    const page = pages.load(number);
    pages.touch(number);
    const at = (page[COUNT]! + 1) * slotWords;
    if (at === PAGE_WORDS) {
      page[GOES_ON] = 1;
      continue;
    }
    page[COUNT]!++;
    page[at] = key.low;
    page[at + 1] = key.high;
    return { page: number, words: page.subarray(at, at + slotWords) };
  }
  throw new SystemError("write", ENOSPC, "find room in a table");
}

/** Removes a slot. Other slots of its page are void after that. */
export function removeSlot({ pages, slotWords }: Table, { page: number, words }: Slot): void {
  const page = pages.load(number);
  const last = page.subarray(page[COUNT]! * slotWords, (page[COUNT]! + 1) * slotWords);
  words.set(last);
  last.fill(0);
  page[COUNT]!--;
  pages.touch(number);
}

/** Makes a page ready to be written as page `number`. */
export function sealPage(page: Uint32Array, number: number): void {
  page[NUMBER] = number;
  page[CHECKSUM] = checksum(page);
}

/** @throws {SystemError} `EIO` if the page is not the one that was written as `number`: something else wrote into the file */
export function requireSealed(page: Uint32Array, number: number): void {
  if (page[NUMBER] !== number || page[CHECKSUM] !== checksum(page)) throw new SystemError("read", EIO);
}

function checksum(page: Uint32Array): number {
  return Bun.hash.crc32(page.subarray(CHECKSUM + 1));
}
