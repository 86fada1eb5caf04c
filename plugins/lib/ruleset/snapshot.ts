/**
 * What is seen of a table of our own: elements and chains by their names, several in one question and none twice.
 *
 * @module
 */
import * as nft from "../../../ffi/nft/objects.ts";
import { chainQuery, elementQuery, generationQuery, getAll, type Query } from "../../../ffi/nft/queries.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import type { TableDefinition } from "./table_definition.ts";

/** Where an element is. */
export interface ElementKey {
  readonly set: string;
  readonly key: Uint8Array;
}

/** A place as text. */
export function elementId({ set, key }: ElementKey): string {
  return `${set} ${nft.formatHex(key)}`;
}

/** What a table was like when it was looked at. */
export interface RulesetSnapshot {
  readonly nl: Netlink;
  readonly table: TableDefinition;
  /** The ruleset's number before the first look: as long as it is the same, all that was seen is so. */
  readonly generation: number;
  /** Looks at all of these at once, as far as they were not yet; at chains with their companions. */
  fetch(places: readonly ElementKey[], chains: readonly string[]): void;
  /** The element at this place, if there is one. */
  element(place: ElementKey): nft.Element | undefined;
  /** The chain of this name, if there is one. */
  chain(name: string): nft.Chain | undefined;
}

/** Looks at a table for the first time. @throws {NetlinkError} */
export function takeSnapshot(
  nl: Netlink,
  table: TableDefinition,
  keys: readonly ElementKey[],
  chains: readonly string[],
): RulesetSnapshot {
  const elementsById = new Map<string, nft.Element | undefined>();
  const chainsByName = new Map<string, nft.Chain | undefined>();
  let generation: number | undefined;
  const fetch: RulesetSnapshot["fetch"] = (moreKeys, moreChains) => {
    const queries: Query<unknown>[] = [];
    const handlers: ((answer: unknown) => void)[] = [];
    const addQuery = <T>(query: Query<T>, handle: (answer: T | undefined) => void) => {
      queries.push(query);
      handlers.push(handle as (answer: unknown) => void);
    };
    if (generation === undefined) addQuery(generationQuery(), (answer) => generation = answer ?? 0);
    for (const name of moreChains) {
      if (chainsByName.has(name)) continue;
      chainsByName.set(name, undefined);
      addQuery(chainQuery(table, name), (answer) => chainsByName.set(name, answer));
    }
    for (const elementKey of [...moreKeys, ...moreChains.flatMap((name) => table.chainElementsOf?.(name) ?? [])]) {
      const id = elementId(elementKey);
      if (elementsById.has(id)) continue;
      elementsById.set(id, undefined);
      addQuery(elementQuery(table, elementKey.set, elementKey.key), (answer) => elementsById.set(id, answer));
    }
    getAll(nl, queries).forEach((answer, i) => handlers[i]!(answer));
  };
  fetch(keys, chains);
  return {
    nl,
    table,
    generation: generation ?? 0,
    fetch,
    element(elementKey) {
      fetch([elementKey], []);
      return elementsById.get(elementId(elementKey));
    },
    chain(name) {
      fetch([], [name]);
      return chainsByName.get(name);
    },
  };
}
