/**
 * Several questions about the ruleset in one send, each about one thing that has a name: the kernel looks it up, whatever else there is.
 *
 * @module
 */
import { NetlinkError } from "../netlink/error.ts";
import type { AnyMessageSpec, MessageOut } from "../netlink/message.ts";
import { type Netlink, type NetlinkRequest, queryAllIfPresent, request } from "../netlink/socket.ts";
import {
  type Chain,
  type Element,
  formatHex,
  GET_CHAIN,
  GET_ELEMENTS,
  GET_GENERATION,
  GET_SET,
  GET_TABLE,
  type Set,
  type Table,
  type TableKey,
  toElement,
} from "./objects.ts";

/** A question, and how its answer is read. */
export interface Query<T> {
  readonly request: NetlinkRequest;
  /** What it is for, in the words of an error. */
  purpose(): string;
  read(answer: MessageOut<AnyMessageSpec>): T | undefined;
}

/** Asks for a table. */
export function tableQuery({ family, table }: TableKey): Query<Table> {
  return {
    request: request(GET_TABLE, { family, name: table }),
    purpose: () => `find table "${table}"`,
    read: (answer) => answer as Table,
  };
}

/** Asks for a chain with its `use`. */
export function chainQuery({ family, table }: TableKey, name: string): Query<Chain> {
  return {
    request: request(GET_CHAIN, { family, table, name }),
    purpose: () => `find chain "${name}" of table "${table}"`,
    read: (answer) => answer as Chain,
  };
}

/** Asks for a set, without its elements. */
export function setQuery({ family, table }: TableKey, name: string): Query<Set> {
  return {
    request: request(GET_SET, { family, table, name }),
    purpose: () => `find set "${name}" of table "${table}"`,
    read: (answer) => answer as Set,
  };
}

/** Asks for the element of a set that has this key. */
export function elementQuery({ family, table }: TableKey, set: string, key: Uint8Array): Query<Element> {
  return {
    request: request(GET_ELEMENTS, { family, table, set, elements: [{ key: { value: key } }] }),
    purpose: () => `find element ${formatHex(key)} of set "${set}" of table "${table}"`,
    read: (answer) => (answer as MessageOut<(typeof GET_ELEMENTS)["spec"]>).elements?.map(toElement)[0],
  };
}

/** Asks for the number of the ruleset. Asked first, it tells whether the other answers still hold. */
export function generationQuery(): Query<number> {
  return {
    request: request(GET_GENERATION, {}),
    purpose: () => "read the ruleset's generation (it needs the kernel's module nf_tables)",
    read: (answer) => (answer as MessageOut<(typeof GET_GENERATION)["spec"]>).id ?? 0,
  };
}

/** What the questions are about, in order; `undefined` for what there is not. @throws {NetlinkError} */
export function getAll<T>(nl: Netlink, queries: readonly Query<T>[]): (T | undefined)[] {
  try {
    const replies = queryAllIfPresent(nl, queries.map((query) => query.request));
    return replies.map((reply, i) => reply && queries[i]!.read(reply));
  } catch (error) {
    throw error instanceof NetlinkError ? error.withPurpose(queries[error.index]!.purpose()) : error;
  }
}
