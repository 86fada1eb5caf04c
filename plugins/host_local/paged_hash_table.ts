/**
 * Hash tables in pages of a file: whatever their size, a key is found by reading one page, and changed by writing it.
 *
 * A page starts with its checksum, its number and the count of its slots, which follow without a gap. What does not fit into a
 * page is in the next one; a table is made large enough for that to be rare.
 *
 * @module
 */
import { EIO, ENOSPC } from "../../ffi/sys/errno.ts";
import { SystemError } from "../../ffi/sys/error.ts";

export const PAGE_BYTES = 4096;
export const PAGE_WORDS = PAGE_BYTES / 4;
// Places of the words in front of the slots.
const CHECKSUM_WORD = 0;
const NUMBER_WORD = 1;
const COUNT_WORD = 2;
/** Set for ever once a slot had to go to the next page. */
const OVERFLOW_WORD = 3;

/** Pages as they are read and changed. */
export interface PageCache {
  /** The page of this number, the same array every time. @throws {SystemError} `EIO` if it is damaged */
  load(number: number): Uint32Array;
  /** Tells that the page was changed. */
  markDirty(number: number): void;
}

/** A hash table: `count` pages from number `first` on. */
export interface HashTable {
  readonly pages: PageCache;
  readonly first: number;
  readonly count: number;
  /** Two for the key, the rest is the user's. A page keeps the room of the first slot to itself. */
  readonly slotWords: number;
  /** In how many pages a new slot may look for room. */
  readonly maxProbes: number;
}

/** 64 bits that stand for something longer. */
export interface KeyHash {
  readonly low: number;
  readonly high: number;
}

/** One entry: its words, as a view of the page that holds them. */
export interface Slot {
  readonly page: number;
  readonly words: Uint32Array;
}

/** By two functions that give numbers: taking a bigint to pieces takes longer than both. */
export function hashKey(key: string | Uint8Array): KeyHash {
  return { low: Bun.hash.xxHash32(key), high: Bun.hash.murmur32v3(key) };
}

/** A number of pages that so many slots fill to the half, since every ADD may bring one more. */
export function pageCountFor(slots: number, slotWords: number): number {
  return 1 + Math.ceil(slots / (PAGE_WORDS / slotWords / 2));
}

/** The number of the page that may hold a key after `before` others were full; most of the time the first is all there is. */
function pageNumber({ first, count }: HashTable, { low }: KeyHash, probe: number): number {
  return first + (Math.floor(low / 2 ** 32 * count) + probe) % count;
}

/** The slots of a key. */
export function findSlots(table: HashTable, key: KeyHash): Slot[] {
  const { pages, slotWords } = table;
  const slots: Slot[] = [];
  for (let i = 0; i < table.count; i++) {
    const number = pageNumber(table, key, i);
    const page = pages.load(number);
    const end = (page[COUNT_WORD]! + 1) * slotWords;
    for (
      let offset = page.indexOf(key.low, slotWords);
      offset >= 0 && offset < end;
      offset = page.indexOf(key.low, offset + 1)
    ) {
      if (offset % slotWords !== 0 || page[offset + 1] !== key.high) continue;
      slots.push({ page: number, words: page.subarray(offset, offset + slotWords) });
    }
    if (page[OVERFLOW_WORD] === 0) break;
  }
  return slots;
}

/** A new slot, all zeros behind the key. @throws {SystemError} `ENOSPC` if there is none within reach: the table is too small by now */
export function addSlot(table: HashTable, key: KeyHash): Slot {
  const { pages, slotWords } = table;
  for (let i = 0; i < Math.min(table.count, table.maxProbes); i++) {
    const number = pageNumber(table, key, i);
    const page = pages.load(number);
    pages.markDirty(number);
    const offset = (page[COUNT_WORD]! + 1) * slotWords;
    if (offset === PAGE_WORDS) {
      page[OVERFLOW_WORD] = 1;
      continue;
    }
    page[COUNT_WORD]!++;
    page[offset] = key.low;
    page[offset + 1] = key.high;
    return { page: number, words: page.subarray(offset, offset + slotWords) };
  }
  throw new SystemError("write", ENOSPC, "find room in a table");
}

/** Removes a slot. Other slots of its page are void after that. */
export function removeSlot({ pages, slotWords }: HashTable, { page: number, words }: Slot): void {
  const page = pages.load(number);
  const last = page.subarray(page[COUNT_WORD]! * slotWords, (page[COUNT_WORD]! + 1) * slotWords);
  words.set(last);
  last.fill(0);
  page[COUNT_WORD]!--;
  pages.markDirty(number);
}

/** Makes a page ready to be written as page `number`. */
export function writeChecksum(page: Uint32Array, number: number): void {
  page[NUMBER_WORD] = number;
  page[CHECKSUM_WORD] = checksum(page);
}

/** @throws {SystemError} `EIO` if the page is not the one that was written as `number`: something else wrote into the file */
export function requireChecksum(page: Uint32Array, number: number): void {
  if (page[NUMBER_WORD] !== number || page[CHECKSUM_WORD] !== checksum(page)) throw new SystemError("read", EIO);
}

function checksum(page: Uint32Array): number {
  return Bun.hash.crc32(page.subarray(CHECKSUM_WORD + 1));
}
