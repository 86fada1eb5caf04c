/**
 * Several questions about the ruleset in one send, each about one thing that has a name: the kernel looks it up, whatever else there is.
 *
 * @module
 */
import { NetlinkError } from "../netlink/error.ts";
import type { AnySpec, MessageOut } from "../netlink/message.ts";
import { findAll, type Netlink, type Request, request } from "../netlink/socket.ts";
import {
  type Chain,
  type Element,
  getChain,
  getElements,
  getGeneration,
  getTable,
  hex,
  readElement,
  type Table,
  type TableKey,
} from "./objects.ts";

/** A question, and how its answer is read. */
export interface Question<T> {
  readonly request: Request;
  /** What it is for, in the words of an error. */
  purpose(): string;
  read(answer: MessageOut<AnySpec>): T | undefined;
}

/** Asks for a table. */
export function tableQuestion({ family, table }: TableKey): Question<Table> {
  return {
    request: request(getTable, { family, name: table }),
    purpose: () => `find table "${table}"`,
    read: (answer) => answer as Table,
  };
}

/** Asks for a chain with its `use`. */
export function chainQuestion({ family, table }: TableKey, name: string): Question<Chain> {
  return {
    request: request(getChain, { family, table, name }),
    purpose: () => `find chain "${name}" of table "${table}"`,
    read: (answer) => answer as Chain,
  };
}

/** Asks for the element of a set that has this key. */
export function elementQuestion({ family, table }: TableKey, set: string, key: Uint8Array): Question<Element> {
  return {
    request: request(getElements, { family, table, set, elements: [{ key: { value: key } }] }),
    purpose: () => `find element ${hex(key)} of set "${set}" of table "${table}"`,
    read: (answer) => (answer as MessageOut<(typeof getElements)["spec"]>).elements?.map(readElement)[0],
  };
}

/** Asks for the number of the ruleset. Asked first, it tells whether the other answers still hold. */
export function generationQuestion(): Question<number> {
  return {
    request: request(getGeneration, {}),
    purpose: () => "read the ruleset's generation (it needs the kernel's module nf_tables)",
    read: (answer) => (answer as MessageOut<(typeof getGeneration)["spec"]>).id ?? 0,
  };
}

/** What the questions are about, in order; `undefined` for what there is not. @throws {NetlinkError} */
export function ask<T>(nl: Netlink, questions: readonly Question<T>[]): (T | undefined)[] {
  try {
    const answers = findAll(nl, questions.map((each) => each.request));
    return answers.map((answer, i) => answer && questions[i]!.read(answer));
  } catch (error) {
    throw error instanceof NetlinkError ? error.forPurpose(questions[error.index]!.purpose()) : error;
  }
}
