import { expect, test } from "bun:test";
import { declarationsOf, exportProblems } from "./exports.ts";

test("declarationsOf() finds every form of export, each name once", () => {
  const source = [
    "export function one(): void {}",
    "export async function two(): Promise<void> {}",
    "export function* three() {}",
    "export const four = 4;",
    "export class Five {}",
    "export abstract class Six {}",
    "export interface Seven {}",
    "export type Eight = string;",
    "export enum Nine {}",
    "export const { ten, eleven: twelve }: Numbers = numbers();",
    "export const [thirteen, fourteen] = list;",
    "export type four = 4;",
    'export { fifteen } from "./other.ts";',
    "export default function () {}",
    "const hidden = 1;",
    "  export const indented = 1;",
  ].join("\n");
  expect(declarationsOf("a.ts", source).map(({ line, name }) => `${line} ${name}`)).toEqual([
    "1 one",
    "2 two",
    "3 three",
    "4 four",
    "5 Five",
    "6 Six",
    "7 Seven",
    "8 Eight",
    "9 Nine",
    "10 ten",
    "10 twelve",
    "11 thirteen",
    "11 fourteen",
  ]);
});

const problemsOf = (sources: Readonly<Record<string, string>>) => exportProblems(new Map(Object.entries(sources)));

test("a name that two files export is reported where it is exported again", () => {
  expect(problemsOf({
    "a.ts": "export function find() {}",
    "b.ts": "const other = 1;\nexport interface find {}",
    "c.ts": "function find() {}",
  })).toEqual(['b.ts:2: exports "find", as a.ts does: rename one, or use one for both']);
});

test("functions that are only called through their module's name may have the name of others", () => {
  const sources = {
    "a.ts": "export function add() {}\nexport interface Entry {}",
    "b.ts": "export function add() {}",
    "c.ts": "export function add() {}",
    "user.ts": 'import * as a from "./a.ts";\nimport type * as b from "./b.ts";\nimport { add } from "./c.ts";',
  };
  expect(problemsOf(sources)).toEqual([]);
  const named = { ...sources, "other.ts": 'import {\n  add as addB,\n  type Entry,\n} from "./b.ts";' };
  expect(problemsOf(named)).toEqual(['c.ts:1: exports "add", as b.ts does: rename one, or use one for both']);
  const type = { ...sources, "d.ts": "export type Entry = 1;" };
  expect(problemsOf(type)).toEqual(['d.ts:1: exports "Entry", as a.ts does: rename one, or use one for both']);
});

test("an export under another name is reported", () => {
  expect(
    problemsOf({ "a.ts": 'export { one, type Two as Three } from "./b.ts";', "b.ts": "export * as c from 'c.ts';" }),
  )
    .toEqual(['a.ts:1: exports "Two" as "Three": one thing has one name']);
});
