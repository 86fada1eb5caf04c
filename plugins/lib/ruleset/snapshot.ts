/** What was read of one of our tables: several items in one request, none twice. */
import * as nft from "../../../ffi/nft/objects.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { ignoreErrors } from "../../../ffi/sys/error.ts";
import { whileUnchanged } from "../protocol/shared_reads.ts";
import type { TableDefinition } from "./table.ts";

export interface ElementKey {
  readonly set: string;
  readonly key: Uint8Array;
}

export function elementId({ set, key }: ElementKey): string {
  return `${set} ${nft.formatHex(key)}`;
}

export interface RulesetSnapshot {
  readonly nl: Netlink;
  readonly table: TableDefinition;
  /** Read first: while the ruleset has it, everything fetched holds. */
  readonly generation: number;
  /** Fetches what is missing in one send; chains with their chain elements. */
  fetch(keys: readonly ElementKey[], chains: readonly string[]): void;
  element(key: ElementKey): nft.Element | undefined;
  chain(name: string): nft.Chain | undefined;
  /** 0 if there is no such chain. */
  ruleCount(chain: string): number;
}

/** Lists whole sets where attachments share reads. */
export function takeSnapshot(
  nl: Netlink,
  table: TableDefinition,
  keys: readonly ElementKey[],
  chains: readonly string[],
): RulesetSnapshot {
  const snapshot = whileUnchanged(
    nl,
    table,
    () => newSnapshot(nl, table, keys, chains, nl.rulesetReads !== undefined),
  );
  snapshot.fetch(keys, chains);
  return snapshot;
}

function newSnapshot(
  nl: Netlink,
  table: TableDefinition,
  keys: readonly ElementKey[],
  chains: readonly string[],
  listsWholeSets: boolean,
): RulesetSnapshot {
  const listedSets = new Set<string>();
  const ruleCounts = new Map<string, number>();
  const elementsById = new Map<string, nft.Element | undefined>();
  const chainsByName = new Map<string, nft.Chain | undefined>();
  let generation: number | undefined;
  const fetch: RulesetSnapshot["fetch"] = (moreKeys, moreChains) => {
    const queries: nft.Query<unknown>[] = [];
    const handlers: ((answer: unknown) => void)[] = [];
    const setsToList = new Set<string>();
    const addQuery = <T>(query: nft.Query<T>, handle: (answer: T | undefined) => void) => {
      queries.push(query);
      handlers.push(handle as (answer: unknown) => void);
    };
    if (generation === undefined) addQuery(nft.generationQuery(), (answer) => generation = answer ?? 0);
    for (const name of moreChains) {
      if (chainsByName.has(name)) continue;
      chainsByName.set(name, undefined);
      addQuery(nft.chainQuery(table, name), (answer) => chainsByName.set(name, answer));
    }
    for (const elementKey of [...moreKeys, ...moreChains.flatMap((name) => table.chainElementsOf?.(name) ?? [])]) {
      if (listedSets.has(elementKey.set)) continue;
      const id = elementId(elementKey);
      if (elementsById.has(id)) continue;
      if (listsWholeSets) {
        setsToList.add(elementKey.set);
        continue;
      }
      elementsById.set(id, undefined);
      addQuery(nft.elementQuery(table, elementKey.set, elementKey.key), (answer) => elementsById.set(id, answer));
    }
    if (queries.length > 0) nft.getAll(nl, queries).forEach((answer, i) => handlers[i]!(answer));
    for (const set of setsToList) {
      // The table may be missing, too.
      for (const element of ignoreErrors(["ENOENT"], () => nft.listElements(nl, table, set)) ?? []) {
        elementsById.set(elementId({ set, key: element.key }), element);
      }
      listedSets.add(set);
    }
  };
  fetch(keys, chains);
  return {
    nl,
    table,
    generation: generation ?? 0,
    fetch,
    element(elementKey) {
      const id = elementId(elementKey);
      if (!elementsById.has(id) && !listedSets.has(elementKey.set)) fetch([elementKey], []);
      return elementsById.get(id);
    },
    chain(name) {
      if (!chainsByName.has(name)) fetch([], [name]);
      return chainsByName.get(name);
    },
    ruleCount(chain) {
      const count = ruleCounts.get(chain) ?? nft.listLazyRules(nl, table, chain).length;
      ruleCounts.set(chain, count);
      return count;
    },
  };
}
