/**
 * Records of each owner's elements: DEL finds them without reading those of others.
 *
 * The kernel finds elements only by keys, which are addresses and ports. So each table has a set of records that no
 * rule uses. The key is a digest of owner and purpose. The userdata lists sets and keys.
 */
import { inetService, mark, namedSet, setOf } from "../../../ffi/nft/datatypes.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import { elementReferencesRoom } from "../../../ffi/nft/userdata.ts";
import { transaction } from "../../../ffi/nft/transaction.ts";
import { formatOwnerWithNote, type Owner, ownerText, parseOwner } from "../model/owner.ts";
import { type ElementSelector, type FoundElement, LIST_ALL_THRESHOLD } from "./element_lookup.ts";
import type { ElementKey, RulesetSnapshot } from "./snapshot.ts";
import type { TableDefinition } from "./table.ts";

export const RECORD_SET = "owners";

export const recordSet = () =>
  namedSet(RECORD_SET, setOf([mark, mark, mark, mark, inetService]), "What each attachment has in other sets");

export interface OwnerRecord {
  /** The elements that are the record itself. */
  readonly keys: readonly ElementKey[];
  /** Where the owner's elements are; `undefined` if unknown: nft(8) does not save it. */
  readonly selectors: readonly ElementSelector[] | undefined;
}

export function purposeOf({ purposes }: TableDefinition, set: string): string {
  const found = Object.entries(purposes).find(([, sets]) => sets.includes(set));
  if (!found) throw new RangeError(`Cannot record an element of set "${set}": it has no purpose`);
  return found[0];
}

const DIGEST_BYTES = 16;

export function recordKey(owner: Owner, purpose: string, part = 0): ElementKey {
  const digest = new Bun.CryptoHasher("sha256").update(`${ownerText(owner)} ${purpose}`).digest();
  return { set: RECORD_SET, key: Uint8Array.of(...digest.subarray(0, DIGEST_BYTES), part >> 8, part & 0xff, 0, 0) };
}

/** A long comment has no room for the note. */
export function isRecordFor({ key, note }: FoundElement, owner: Owner, purpose: string): boolean {
  if (note !== undefined) return note === purpose;
  return Buffer.compare(key.subarray(0, DIGEST_BYTES), recordKey(owner, purpose).key.subarray(0, DIGEST_BYTES)) === 0;
}

export function readRecord(
  snapshot: RulesetSnapshot,
  owner: Owner,
  purpose: string,
  firstKey = recordKey(owner, purpose),
): OwnerRecord | undefined {
  const sets = snapshot.table.purposes[purpose]!;
  const first = snapshot.element(firstKey);
  if (!first) return undefined;
  const count = first.references?.[0] ?? 1;
  const keys = Array.from({ length: count }, (_, part) => part === 0 ? firstKey : recordKey(owner, purpose, part));
  snapshot.fetch(keys, []);
  const found = keys.flatMap((key) => snapshot.element(key) ?? []);
  const parts = found.flatMap(({ references }) => references ? [references.subarray(1)] : []);
  return {
    keys: keys.filter((key) => snapshot.element(key)),
    selectors: parts.length === count ? parts.flatMap((part) => decodeSelectors(part, sets)) : undefined,
  };
}

/** False for a table of an earlier release. */
export function keepsRecords(nl: RulesetSnapshot["nl"], table: TableDefinition): boolean {
  const [found, records] = nft.getAll<unknown>(nl, [nft.tableQuery(table), nft.setQuery(table, RECORD_SET)]);
  return found === undefined || records !== undefined;
}

/** Upgrades a table of an earlier release. */
export function addRecords(nl: RulesetSnapshot["nl"], table: TableDefinition): void {
  const generation = nft.getGenerationId(nl);
  const tx = transaction(nl).addSet({ family: table.family, table: table.table, ...recordSet() });
  for (const [purpose, sets] of Object.entries(table.purposes)) {
    const keys = sets.flatMap((set) => nft.listElements(nl, table, set).map((element) => ({ ...element, set })));
    for (const [comment, owned] of Map.groupBy(keys, ({ comment = "" }) => comment.split(" ", 3).join(" "))) {
      const owner = parseOwner(comment);
      if (owner) tx.addElements(table, RECORD_SET, recordElements(table, owner, purpose, mergeSelectors([], owned)));
    }
  }
  tx.commit(generation);
}

export function coversAll({ selectors }: OwnerRecord, keys: readonly ElementKey[]): boolean {
  if (!selectors) return true;
  return keys.every(({ set, key }) =>
    selectors.some((selector) =>
      selector.set === set && (!selector.keys || selector.keys.some((recorded) => Buffer.compare(recorded, key) === 0))
    )
  );
}

export function recordElements(
  { purposes }: TableDefinition,
  owner: Owner,
  purpose: string,
  selectors: readonly ElementSelector[],
): nft.Element[] {
  const comment = formatOwnerWithNote(owner, purpose);
  const parts = encodeSelectors(selectors, purposes[purpose]!, elementReferencesRoom(comment) - 1);
  // Without room for the keys, DEL searches all sets.
  if (parts.length === 0 || parts.length > 0xff) return [{ key: recordKey(owner, purpose).key, comment }];
  return parts.map((part, i) => ({
    key: recordKey(owner, purpose, i).key,
    comment,
    references: Uint8Array.of(parts.length, ...part),
  }));
}

/** Many keys of one set become the whole set. */
export function mergeSelectors(
  selectors: readonly ElementSelector[],
  keys: readonly ElementKey[],
): readonly ElementSelector[] {
  const bySet = new Map<string, Map<string, Uint8Array> | undefined>();
  for (const { set, keys: recorded } of selectors) add(set, recorded);
  for (const [set, added] of Map.groupBy(keys, ({ set }) => set)) add(set, added.map(({ key }) => key));
  return [...bySet].map(([set, known]) => known ? { set, keys: [...known.values()] } : { set });

  function add(set: string, added: readonly Uint8Array[] | undefined): void {
    const known = bySet.has(set) ? bySet.get(set) : new Map<string, Uint8Array>();
    for (const key of added ?? []) {
      if (known && known.size <= LIST_ALL_THRESHOLD) known.set(nft.formatHex(key), key);
    }
    bySet.set(set, added && known && known.size <= LIST_ALL_THRESHOLD ? known : undefined);
  }
}

/** Number of the set, bytes of a key, number of keys. 0 keys: the whole set. */
const HEADER_BYTES = 3;

function encodeSelectors(selectors: readonly ElementSelector[], sets: readonly string[], room: number): number[][] {
  const parts: number[][] = [];
  for (const { set, keys = [] } of selectors) {
    const size = keys[0]?.length ?? 0;
    if (HEADER_BYTES + size > room) return [];
    for (let at = 0; at === 0 || at < keys.length;) {
      let part = parts.at(-1);
      if (!part || part.length + HEADER_BYTES + size > room) parts.push(part = []);
      const count = size === 0 ? 0 : Math.floor((room - part.length - HEADER_BYTES) / size);
      const fitting = keys.slice(at, at + count);
      part.push(sets.indexOf(set), size, fitting.length, ...fitting.flatMap((key) => [...key]));
      at += Math.max(count, 1);
    }
  }
  return parts;
}

function decodeSelectors(part: Uint8Array, sets: readonly string[]): ElementSelector[] {
  const selectors: ElementSelector[] = [];
  for (let at = 0; at < part.length;) {
    const [setNumber = 0, size = 0, count = 0] = part.subarray(at, at + HEADER_BYTES);
    const keysAt = at + HEADER_BYTES;
    const keys = Array.from({ length: count }, (_, i) => part.slice(keysAt + i * size, keysAt + (i + 1) * size));
    selectors.push({ set: sets[setNumber]!, ...count > 0 && { keys } });
    at = keysAt + size * count;
  }
  return selectors;
}
