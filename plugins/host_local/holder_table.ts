/**
 * Which addresses a holder may have: a table that is asked by container and interface.
 *
 * It knows hashes of holders, so what it answers is to be compared with the file of the reservation.
 *
 * @module
 */
import { type Ip, ipFromBytes } from "../../ffi/address.ts";
import {
  addSlot,
  findSlots,
  hashKey,
  type HashTable,
  type KeyHash,
  removeSlot,
  type Slot,
} from "./paged_hash_table.ts";
import { formatHolder, type Holder } from "./inventory.ts";

// A slot: key, length of the address in bytes, the mark of the boot, the address.
const LENGTH_WORD = 2;
const BOOT_TAG_WORD = 3;
const ADDRESS_WORD = 4;
/** @see HashTable.slotWords */
export const HOLDER_SLOT_WORDS = 8;

/** An address, and when it was reserved. */
export interface HolderEntry {
  readonly address: Ip;
  /** The mark of the boot; 0 where that is not known. */
  readonly bootTag: number;
}

/** Adds an address of 4 or 16 bytes. */
export function addHolderAddress(table: HashTable, holder: Holder, bytes: Uint8Array, bootTag: number): void {
  const { words } = addSlot(table, hashHolder(holder));
  words[LENGTH_WORD] = bytes.length;
  words[BOOT_TAG_WORD] = bootTag;
  for (let i = 0; i < bytes.length; i += 4) {
    words[ADDRESS_WORD + i / 4] = bytes[i]! | bytes[i + 1]! << 8 | bytes[i + 2]! << 16 | bytes[i + 3]! << 24;
  }
}

export function removeHolderAddress(table: HashTable, holder: Holder, bytes: Uint8Array): void {
  const address = ipFromBytes(bytes);
  const slot = findSlots(table, hashHolder(holder)).find((candidate) =>
    ipFromBytes(slotAddressBytes(candidate)) === address
  );
  if (slot) removeSlot(table, slot);
}

/** The addresses that were added for this holder, or for one of the same hash. */
export function findHolderAddresses(table: HashTable, holder: Holder): HolderEntry[] {
  return findSlots(table, hashHolder(holder)).map((slot) => ({
    address: ipFromBytes(slotAddressBytes(slot)),
    bootTag: slot.words[BOOT_TAG_WORD]!,
  }));
}

function hashHolder(holder: Holder): KeyHash {
  return hashKey(formatHolder(holder));
}

function slotAddressBytes({ words }: Slot): Uint8Array {
  return new Uint8Array(words.buffer, words.byteOffset + ADDRESS_WORD * 4, words[LENGTH_WORD] === 4 ? 4 : 16);
}
