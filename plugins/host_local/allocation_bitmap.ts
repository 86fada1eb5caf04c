/**
 * Which addresses are taken, so that the next free one is found in a few steps however many are not.
 *
 * A tree with 256 branches at each node, one byte of the address per level. A node is 256 bits: on the last level they say that
 * the address is taken, above that all addresses of the branch are. A node without a bit need not exist, so there is about one
 * node per 256 addresses, and a search goes up and down by the few levels above them.
 *
 * @module
 */
import { addSlot, findSlots, hashKey, type HashTable, type KeyHash, type Slot } from "./paged_hash_table.ts";

// A slot: key, then what tells the node from all others, then the bits.
const NODE_ID = 2;
const NODE_ID_WORDS = 5;
const BITS = 8;
const BITS_WORDS = 8;
/** @see HashTable.slotWords */
export const NODE_SLOT_WORDS = BITS + BITS_WORDS;

interface NodeId {
  readonly key: KeyHash;
  readonly words: Uint32Array;
}

/** Notes that an address of 4 or 16 bytes is taken, or free again. */
export function setAllocated(table: HashTable, address: Uint8Array, allocated: boolean): void {
  setAllocatedFrom(table, address, address.length - 1, allocated);
}

/** On this level, and on those above it as far as that makes a difference. */
function setAllocatedFrom(table: HashTable, address: Uint8Array, from: number, allocated: boolean): void {
  let state = allocated;
  for (let depth = from; depth >= 0; depth--) {
    const nodeId = nodeIdOf(address, depth);
    const node = findNode(table, nodeId) ?? (state ? addNode(table, nodeId) : undefined);
    if (!node) return;
    const wasFull = isFull(node.words);
    setBit(node.words, address[depth]!, state);
    table.pages.markDirty(node.page);
    if (isFull(node.words) === wasFull) return;
    state = !wasFull;
  }
}

export function isAllocated(table: HashTable, address: Uint8Array): boolean {
  const last = address.length - 1;
  return firstZeroBit(findNode(table, nodeIdOf(address, last))?.words, address[last]!) !== address[last];
}

/** The first free address from `from` on, of the same length; `undefined` if there is none. */
export function findNextFree(table: HashTable, from: Uint8Array): Uint8Array | undefined {
  const address = from.slice();
  let branch = address.at(-1)!;
  for (let depth = address.length - 1; depth >= 0; depth--) {
    const free = firstZeroBit(findNode(table, nodeIdOf(address, depth))?.words, branch);
    if (free < 256) {
      address[depth] = free;
      fillLowestFree(table, address, depth + 1);
      return address;
    }
    branch = address[depth - 1]! + 1;
  }
  return undefined;
}

/** Completes an address by its lowest bytes below a branch that is not full. */
function fillLowestFree(table: HashTable, address: Uint8Array, from: number): void {
  for (let depth = from; depth < address.length; depth++) {
    address[depth] = firstZeroBit(findNode(table, nodeIdOf(address, depth))?.words, 0);
  }
}

/** Addresses that share a node of the last level. */
export function groupByNode(addresses: readonly Uint8Array[]): Uint8Array[][] {
  const groups = new Map<number | string, Uint8Array[]>();
  for (const address of addresses) {
    const [a, b, c] = address as unknown as [number, number, number];
    const prefix = address.length === 4 ? a << 16 | b << 8 | c : address.subarray(0, -1).join();
    const group = groups.get(prefix);
    if (group) group.push(address);
    else groups.set(prefix, [address]);
  }
  return [...groups.values()];
}

/** Notes that addresses are taken of which nothing is noted yet, {@linkcode groupByNode} at a time. */
export function setGroupAllocated(table: HashTable, group: readonly Uint8Array[]): void {
  const [first] = group;
  if (!first) return;
  const depth = first.length - 1;
  const { words } = addNode(table, nodeIdOf(first, depth));
  for (const address of group) setBit(words, address[depth]!, true);
  if (isFull(words)) setAllocatedFrom(table, first, depth - 1, true);
}

/** A node is told by its level, its family, and the bytes above it. */
function nodeIdOf(address: Uint8Array, depth: number): NodeId {
  const bytes = new Uint8Array(NODE_ID_WORDS * 4);
  bytes[0] = address.length;
  bytes[1] = depth;
  bytes.set(address.subarray(0, depth), 4);
  return { key: hashKey(bytes), words: new Uint32Array(bytes.buffer) };
}

function findNode(table: HashTable, { key, words }: NodeId): Slot | undefined {
  return findSlots(table, key).find((slot) => words.every((word, i) => slot.words[NODE_ID + i] === word));
}

function addNode(table: HashTable, { key, words }: NodeId): Slot {
  const slot = addSlot(table, key);
  slot.words.set(words, NODE_ID);
  return slot;
}

function setBit(node: Uint32Array, index: number, on: boolean): void {
  const word = BITS + (index >> 5);
  const bit = 1 << (index & 31);
  node[word] = on ? node[word]! | bit : node[word]! & ~bit;
}

function isFull(node: Uint32Array): boolean {
  return firstZeroBit(node, 0) === 256;
}

/** The first bit from `from` on that is not set, 256 if there is none; `undefined` has none set. */
function firstZeroBit(node: Uint32Array | undefined, from: number): number {
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
