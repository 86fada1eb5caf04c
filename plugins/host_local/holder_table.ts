/**
 * Which addresses a holder may have: a table that is asked by container and interface.
 *
 * It knows hashes of holders, so what it answers is to be compared with the file of the reservation.
 *
 * @module
 */
import { type Ip, ipFromBytes } from "../../ffi/address.ts";
import { addSlot, findSlots, type Key, keyOf, removeSlot, type Slot, type Table } from "./pages.ts";
import { formatHolder, type Holder } from "./inventory.ts";

// A slot: key, length of the address in bytes, the mark of the boot, the address.
const LENGTH = 2;
const BOOT = 3;
const ADDRESS = 4;
/** @see Table.slotWords */
export const OWNER_WORDS = 8;

/** An address, and when it was reserved. */
export interface Owned {
  readonly address: Ip;
  /** The mark of the boot; 0 where that is not known. */
  readonly boot: number;
}

/** Adds an address of 4 or 16 bytes. */
export function addOwner(table: Table, holder: Holder, bytes: Uint8Array, boot: number): void {
  const { words } = addSlot(table, holderKey(holder));
  words[LENGTH] = bytes.length;
  words[BOOT] = boot;
  for (let i = 0; i < bytes.length; i += 4) {
    words[ADDRESS + i / 4] = bytes[i]! | bytes[i + 1]! << 8 | bytes[i + 2]! << 16 | bytes[i + 3]! << 24;
  }
}

export function removeOwner(table: Table, holder: Holder, bytes: Uint8Array): void {
  const address = ipFromBytes(bytes);
  const slot = findSlots(table, holderKey(holder)).find((each) => ipFromBytes(bytesOf(each)) === address);
  if (slot) removeSlot(table, slot);
}

/** The addresses that were added for this holder, or for one of the same hash. */
export function findOwned(table: Table, holder: Holder): Owned[] {
  return findSlots(table, holderKey(holder)).map((slot) => ({
    address: ipFromBytes(bytesOf(slot)),
    boot: slot.words[BOOT]!,
  }));
}

function holderKey(holder: Holder): Key {
  return keyOf(formatHolder(holder));
}

function bytesOf({ words }: Slot): Uint8Array {
  return new Uint8Array(words.buffer, words.byteOffset + ADDRESS * 4, words[LENGTH] === 4 ? 4 : 16);
}
