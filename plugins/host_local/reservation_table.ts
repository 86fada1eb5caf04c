/**
 * The records of the index, searched without parsing.
 *
 * A record holds a hash of the holder, the boot tag, and the address in 16 bytes, IPv4 as IPv4-mapped. Records are unordered.
 */
import { type Ip, ipBytes, ipFromBytes, nextIp } from "../../ffi/address.ts";
import { formatHolder, type ReservedAddress } from "./inventory.ts";
import type { AddressHolder } from "../lib/model/reservations.ts";

export const RECORD_BYTES = 24;
const RECORD_WORDS = RECORD_BYTES / 4;
// Word offsets in a record.
const HASH = 0;
const BOOT_TAG = 1;
const ADDRESS = 2;
const LAST_ADDRESS_WORD = 5;
/** Records to add before the array is copied. */
const SPARE_RECORDS = 16;
/** Beyond this number, all records are written at once. */
const MAX_SINGLE_WRITES = 100;

export class ReservationTable {
  #words: Uint32Array<ArrayBuffer>;
  #count: number;
  readonly #changedRecords = new Set<number>();

  /** @param read fills in the bytes of `count` records */
  constructor(count = 0, read?: (bytes: Uint8Array) => void) {
    this.#count = count;
    this.#words = new Uint32Array((count + SPARE_RECORDS) * RECORD_WORDS);
    read?.(this.bytes());
  }

  get count(): number {
    return this.#count;
  }

  bytes(first = 0, count = this.#count): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.#words.buffer, first * RECORD_BYTES, count * RECORD_BYTES);
  }

  /** What has changed since the last call. */
  takeChanges(): [offset: number, bytes: Uint8Array][] {
    const numbers = [...this.#changedRecords].filter((number) => number < this.#count);
    this.#changedRecords.clear();
    if (numbers.length > MAX_SINGLE_WRITES) return [[0, this.bytes()]];
    return numbers.map((number) => [number * RECORD_BYTES, this.bytes(number, 1)]);
  }

  /** @param holder absent if something else has the address as its name @param bootTag 0 if not known */
  add(address: Ip, holder: AddressHolder | undefined, bootTag: number): void {
    const number = this.#count++;
    if (this.#count * RECORD_WORDS > this.#words.length) {
      const larger = new Uint32Array(this.#words.length * 2);
      larger.set(this.#words);
      this.#words = larger;
    }
    this.#words.set([holder ? hashOf(holder) : 0, bootTag, ...addressWords(address)], number * RECORD_WORDS);
    this.#changedRecords.add(number);
  }

  /** The last record takes its place. */
  remove(address: Ip): void {
    const number = this.#findAddress(address);
    if (number === undefined) return;
    const last = --this.#count * RECORD_WORDS;
    this.#words.copyWithin(number * RECORD_WORDS, last, last + RECORD_WORDS);
    this.#changedRecords.add(number);
  }

  has(address: Ip): boolean {
    return this.#findAddress(address) !== undefined;
  }

  /** Other holders may have the same hash. */
  findByHolder(holder: AddressHolder): ReservedAddress[] {
    return this.#numbersOf(HASH, hashOf(holder)).map((number) => ({
      address: ipFromBytes(this.bytes(number, 1).subarray(ADDRESS * 4)),
      bootTag: this.#words[number * RECORD_WORDS + BOOT_TAG]!,
    }));
  }

  findFree(from: Ip): Ip | undefined {
    let start: Ip | undefined = from;
    while (start !== undefined && this.has(start)) {
      const bytes = mappedBytes(start);
      const free = this.#listTaken(start).indexOf(0, bytes[14]! << 8 | bytes[15]!);
      bytes.set(free < 0 ? [0xff, 0xff] : [free >> 8, free & 0xff], 14);
      const address: Ip = ipFromBytes(bytes);
      start = free < 0 ? nextIp(address) : address;
    }
    return start;
  }

  /** Indexed by the last two bytes of the addresses that share the other bytes with `ip`. */
  #listTaken(ip: Ip): Uint8Array {
    const words = this.#words;
    const [first, second, third, fourth] = addressWords(ip);
    const taken = new Uint8Array(0x1_0000);
    for (let at = ADDRESS; at < this.#count * RECORD_WORDS; at += RECORD_WORDS) {
      const last = words[at + 3]!;
      // Little-endian: the upper half holds the last two bytes, in reverse.
      const isBeside = words[at] === first && words[at + 1] === second && words[at + 2] === third &&
        (last & 0xffff) === (fourth! & 0xffff);
      if (isBeside) taken[last >>> 8 & 0xff00 | last >>> 24] = 1;
    }
    return taken;
  }

  #findAddress(address: Ip): number | undefined {
    const wanted = addressWords(address);
    return this.#numbersOf(LAST_ADDRESS_WORD, wanted[3]!).find((number) =>
      wanted.every((word, i) => this.#words[number * RECORD_WORDS + ADDRESS + i] === word)
    );
  }

  #numbersOf(offset: number, value: number): number[] {
    const numbers: number[] = [];
    const words = this.#words.subarray(0, this.#count * RECORD_WORDS);
    for (let at = words.indexOf(value); at >= 0; at = words.indexOf(value, at + 1)) {
      if (at % RECORD_WORDS === offset) numbers.push(Math.floor(at / RECORD_WORDS));
    }
    return numbers;
  }
}

function hashOf(holder: AddressHolder): number {
  return Bun.hash.xxHash32(formatHolder(holder));
}

function addressWords(address: Ip): Uint32Array {
  return new Uint32Array(mappedBytes(address).buffer);
}

function mappedBytes(address: Ip): Uint8Array<ArrayBuffer> {
  const bytes = ipBytes(address);
  const mapped = new Uint8Array(16);
  if (bytes.length === 4) mapped.fill(0xff, 10);
  mapped.set(bytes, 16 - bytes.length);
  return mapped;
}
