/**
 * Which addresses are taken, so that the next free one is found in a few steps however many are not.
 *
 * A tree with 256 branches at each node, one byte of the address per level. A node is 256 bits: on the last level they say that
 * the address is taken, above that all addresses of the branch are. A node without a bit need not exist, so there is about one
 * node per 256 addresses, and a search goes up and down by the few levels above them.
 *
 * @module
 */
import { addSlot, findSlots, type Key, keyOf, type Slot, type Table } from "./pages.ts";

// A slot: key, then what tells the node from all others, then the bits.
const NAME = 2;
const NAME_WORDS = 5;
const BITS = 8;
const BITS_WORDS = 8;
/** @see Table.slotWords */
export const NODE_WORDS = BITS + BITS_WORDS;

interface Name {
  readonly key: Key;
  readonly words: Uint32Array;
}

/** Notes that an address of 4 or 16 bytes is taken, or free again. */
export function mark(table: Table, address: Uint8Array, taken: boolean): void {
  markFrom(table, address, address.length - 1, taken);
}

/** On this level, and on those above it as far as that makes a difference. */
function markFrom(table: Table, address: Uint8Array, from: number, taken: boolean): void {
  let state = taken;
  for (let depth = from; depth >= 0; depth--) {
    const name = nameOf(address, depth);
    const node = findNode(table, name) ?? (state ? addNode(table, name) : undefined);
    if (!node) return;
    const wasFull = isFull(node.words);
    setBit(node.words, address[depth]!, state);
    table.pages.touch(node.page);
    if (isFull(node.words) === wasFull) return;
    state = !wasFull;
  }
}

export function isTaken(table: Table, address: Uint8Array): boolean {
  const last = address.length - 1;
  return firstZero(findNode(table, nameOf(address, last))?.words, address[last]!) !== address[last];
}

/** The first free address from `from` on, of the same length; `undefined` if there is none. */
export function nextFree(table: Table, from: Uint8Array): Uint8Array | undefined {
  const address = from.slice();
  let branch = address.at(-1)!;
  for (let depth = address.length - 1; depth >= 0; depth--) {
    const free = firstZero(findNode(table, nameOf(address, depth))?.words, branch);
    if (free < 256) {
      address[depth] = free;
      descend(table, address, depth + 1);
      return address;
    }
    branch = address[depth - 1]! + 1;
  }
  return undefined;
}

/** Completes an address by its lowest bytes below a branch that is not full. */
function descend(table: Table, address: Uint8Array, from: number): void {
  for (let depth = from; depth < address.length; depth++) {
    address[depth] = firstZero(findNode(table, nameOf(address, depth))?.words, 0);
  }
}

/** Addresses that share a node of the last level. */
export function groupByNode(addresses: readonly Uint8Array[]): Uint8Array[][] {
  const groups = new Map<number | string, Uint8Array[]>();
  for (const address of addresses) {
    const [a, b, c] = address as unknown as [number, number, number];
    const name = address.length === 4 ? a << 16 | b << 8 | c : address.subarray(0, -1).join();
    const group = groups.get(name);
    if (group) group.push(address);
    else groups.set(name, [address]);
  }
  return [...groups.values()];
}

/** Notes that addresses are taken of which nothing is noted yet, {@linkcode groupByNode} at a time. */
export function markGroup(table: Table, group: readonly Uint8Array[]): void {
  const [first] = group;
  if (!first) return;
  const depth = first.length - 1;
  const { words } = addNode(table, nameOf(first, depth));
  for (const address of group) setBit(words, address[depth]!, true);
  if (isFull(words)) markFrom(table, first, depth - 1, true);
}

/** A node is told by its level, its family, and the bytes above it. */
function nameOf(address: Uint8Array, depth: number): Name {
  const bytes = new Uint8Array(NAME_WORDS * 4);
  bytes[0] = address.length;
  bytes[1] = depth;
  bytes.set(address.subarray(0, depth), 4);
  return { key: keyOf(bytes), words: new Uint32Array(bytes.buffer) };
}

function findNode(table: Table, { key, words }: Name): Slot | undefined {
  return findSlots(table, key).find((slot) => words.every((word, i) => slot.words[NAME + i] === word));
}

function addNode(table: Table, { key, words }: Name): Slot {
  const slot = addSlot(table, key);
  slot.words.set(words, NAME);
  return slot;
}

function setBit(node: Uint32Array, at: number, on: boolean): void {
  const word = BITS + (at >> 5);
  const bit = 1 << (at & 31);
  node[word] = on ? node[word]! | bit : node[word]! & ~bit;
}

function isFull(node: Uint32Array): boolean {
  return firstZero(node, 0) === 256;
}

/** The first bit from `from` on that is not set, 256 if there is none; `undefined` has none set. */
function firstZero(node: Uint32Array | undefined, from: number): number {
  if (!node || from >= 256) return from;
  let ignored = (1 << (from & 31)) - 1;
  for (let word = from >> 5; word < BITS_WORDS; word++) {
    const free = ~(node[BITS + word]! | ignored);
    // The lowest bit: x & -x leaves it alone.
    if (free !== 0) return word * 32 + 31 - Math.clz32(free & -free);
    ignored = 0;
  }
  return 256;
}
