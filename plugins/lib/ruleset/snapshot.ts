/**
 * What is seen of a table of our own: elements and chains by their names, several in one question and none twice.
 *
 * @module
 */
import * as nft from "../../../ffi/nft/objects.ts";
import { ask, chainQuestion, elementQuestion, generationQuestion, type Question } from "../../../ffi/nft/queries.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import type { OwnTable } from "./table.ts";

/** Where an element is. */
export interface Place {
  readonly set: string;
  readonly key: Uint8Array;
}

/** A place as text. */
export function identify({ set, key }: Place): string {
  return `${set} ${nft.hex(key)}`;
}

/** What a table was like when it was looked at. */
export interface View {
  readonly nl: Netlink;
  readonly table: OwnTable;
  /** The ruleset's number before the first look: as long as it is the same, all that was seen is so. */
  readonly generation: number;
  /** Looks at all of these at once, as far as they were not yet; at chains with their companions. */
  look(places: readonly Place[], chains: readonly string[]): void;
  /** The element at this place, if there is one. */
  element(place: Place): nft.Element | undefined;
  /** The chain of this name, if there is one. */
  chain(name: string): nft.Chain | undefined;
}

/** Looks at a table for the first time. @throws {NetlinkError} */
export function viewOf(nl: Netlink, table: OwnTable, places: readonly Place[], chains: readonly string[]): View {
  const elements = new Map<string, nft.Element | undefined>();
  const byName = new Map<string, nft.Chain | undefined>();
  let generation: number | undefined;
  const look: View["look"] = (morePlaces, moreChains) => {
    const questions: Question<unknown>[] = [];
    const takers: ((answer: unknown) => void)[] = [];
    const put = <T>(question: Question<T>, take: (answer: T | undefined) => void) => {
      questions.push(question);
      takers.push(take as (answer: unknown) => void);
    };
    if (generation === undefined) put(generationQuestion(), (answer) => generation = answer ?? 0);
    for (const name of moreChains) {
      if (byName.has(name)) continue;
      byName.set(name, undefined);
      put(chainQuestion(table, name), (answer) => byName.set(name, answer));
    }
    for (const place of [...morePlaces, ...moreChains.flatMap((name) => table.companionsOf?.(name) ?? [])]) {
      const id = identify(place);
      if (elements.has(id)) continue;
      elements.set(id, undefined);
      put(elementQuestion(table, place.set, place.key), (answer) => elements.set(id, answer));
    }
    ask(nl, questions).forEach((answer, i) => takers[i]!(answer));
  };
  look(places, chains);
  return {
    nl,
    table,
    generation: generation ?? 0,
    look,
    element(place) {
      look([place], []);
      return elements.get(identify(place));
    },
    chain(name) {
      look([], [name]);
      return byName.get(name);
    },
  };
}
