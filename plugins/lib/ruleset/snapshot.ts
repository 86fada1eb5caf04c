/**
 * A table of our own as it was read: elements and chains by their names, several in one request and none twice.
 *
 * @module
 */
import * as nft from "../../../ffi/nft/objects.ts";
import { chainQuery, elementQuery, generationQuery, getAll, type Query } from "../../../ffi/nft/queries.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import type { TableDefinition } from "./table_definition.ts";

/** A set and the key of an element in it. */
export interface ElementKey {
  readonly set: string;
  readonly key: Uint8Array;
}

/** The key as text. */
export function elementId({ set, key }: ElementKey): string {
  return `${set} ${nft.formatHex(key)}`;
}

/** A table as it was read. */
export interface RulesetSnapshot {
  readonly nl: Netlink;
  readonly table: TableDefinition;
  /** The generation before the first fetch: while the ruleset has it, all that was fetched holds. */
  readonly generation: number;
  /** Fetches all of these at once that were not fetched yet; chains with their chain elements. */
  fetch(keys: readonly ElementKey[], chains: readonly string[]): void;
  /** The element with this key, if there is one. */
  element(key: ElementKey): nft.Element | undefined;
  /** The chain of this name, if there is one. */
  chain(name: string): nft.Chain | undefined;
}

/** Reads elements and chains of a table. @throws {NetlinkError} */
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
