/** Elements and chains of a table of our own as they were read: several in one request, none twice. */
import * as nft from "../../../ffi/nft/objects.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
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
  /** From before the first fetch: while the ruleset has it, all that was fetched holds. */
  readonly generation: number;
  /** Fetches what was not fetched yet, in one send; chains with their chain elements. */
  fetch(keys: readonly ElementKey[], chains: readonly string[]): void;
  element(key: ElementKey): nft.Element | undefined;
  chain(name: string): nft.Chain | undefined;
  /** 0 if there is no such chain. */
  ruleCount(chain: string): number;
}

const sharedSnapshots = new WeakMap<Netlink, Map<TableDefinition, RulesetSnapshot>>();

/** Until the scope ends or the ruleset changes, each set is read once and as a whole: for commands over all attachments. */
export function shareSnapshots(nl: Netlink): Disposable {
  sharedSnapshots.set(nl, new Map());
  return { [Symbol.dispose]: () => void sharedSnapshots.delete(nl) };
}

export function takeSnapshot(
  nl: Netlink,
  table: TableDefinition,
  keys: readonly ElementKey[],
  chains: readonly string[],
): RulesetSnapshot {
  const shared = sharedSnapshots.get(nl);
  if (!shared) return newSnapshot(nl, table, keys, chains, false);
  const known = shared.get(table);
  if (known && known.generation !== nft.getGenerationId(nl)) {
    // A command that restores changes the ruleset often: do not list whole sets again after each change.
    sharedSnapshots.delete(nl);
    return newSnapshot(nl, table, keys, chains, false);
  }
  const snapshot = known ?? newSnapshot(nl, table, keys, chains, true);
  shared.set(table, snapshot);
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
      const id = elementId(elementKey);
      if (elementsById.has(id) || listedSets.has(elementKey.set)) continue;
      if (listsWholeSets) {
        setsToList.add(elementKey.set);
        continue;
      }
      elementsById.set(id, undefined);
      addQuery(nft.elementQuery(table, elementKey.set, elementKey.key), (answer) => elementsById.set(id, answer));
    }
    nft.getAll(nl, queries).forEach((answer, i) => handlers[i]!(answer));
    for (const set of setsToList) {
      for (const element of nft.listElements(nl, table, set)) {
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
      fetch([elementKey], []);
      return elementsById.get(elementId(elementKey));
    },
    chain(name) {
      fetch([], [name]);
      return chainsByName.get(name);
    },
    ruleCount(chain) {
      const count = ruleCounts.get(chain) ?? nft.listLazyRules(nl, table, chain).length;
      ruleCounts.set(chain, count);
      return count;
    },
  };
}
