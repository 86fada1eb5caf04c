import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";
import { habitProblems, STATE_OWNERS } from "./habits.ts";

const problemsOf = (source: string, path = "ffi/a.ts") => habitProblems(new Map([[path, source]]));
const advice = "write a whole sentence, or leave it out";

test("documentation of four words is reported with its line, and one of five is not", () => {
  expect(problemsOf("import a;\n\n/** A call of plugins. */\nexport interface Call {}")).toEqual([
    `ffi/a.ts:3: "A call of plugins.": ${advice}`,
  ]);
  expect(problemsOf("/**\n * The names\n * of links.\n */\nconst a = 1;")).toEqual([
    `ffi/a.ts:1: "The names of links.": ${advice}`,
  ]);
  expect(problemsOf("/** Traces. @module */\nconst a = 1;")).toEqual([`ffi/a.ts:1: "Traces.": ${advice}`]);
  expect(problemsOf("/** A call of one plugin. */\nexport interface Call {}")).toEqual([]);
});

test("tags, examples and comments that are no documentation may be short", () => {
  const sources = [
    "/** @see RFC 1071 */",
    "/** @throws {RangeError} */",
    '/** `iifname "eth0"`, `iifname "eth*"` */',
    "// linux/if.h",
    'const text = "/** As written. */";',
  ];
  for (const source of sources) expect(problemsOf(`${source}\nconst a = 1;`)).toEqual([]);
});

test("a literal that is only spread is reported, also over several lines", () => {
  const problem = "spreads a literal: write a property or element a line";
  expect(problemsOf("return {\n  ...{ workers, parts: [1] },\n  ...{\n    a: f(1),\n  },\n};")).toEqual([
    `ffi/a.ts:2: ${problem}`,
    `ffi/a.ts:3: ${problem}`,
  ]);
  expect(problemsOf('const all = [...["a", "]"], ...[...b, c]];')).toEqual([
    `ffi/a.ts:1: ${problem}`,
    `ffi/a.ts:1: ${problem}`,
  ]);
});

test("what is made of a literal, and what may be absent, is spread", () => {
  const source = [
    "const all = [...[a, b].map(f), ...cond ? [a] : [], ...rest];",
    "const one = { ...cond && { a }, ...(a && { b }), ...{ a: 1, b: 2 }[key] };",
    "// as in ...{ a }, or ...[a, b],",
    'const text = "...{ a },";',
  ].join("\n");
  expect(problemsOf(source)).toEqual([]);
});

const STATES = [
  "let last: string | undefined;",
  "export let observer;",
  "const known = new WeakMap<Plugin, Model>();",
  "  const known = new WeakSet();",
];

test("a variable of a module and a weak map are reported, and those of functions and objects are not", () => {
  for (const state of STATES) {
    expect(problemsOf(`import a;\n${state}`)).toEqual([
      "ffi/a.ts:2: keeps state in the air: make it a field of what it is about",
    ]);
  }
  expect(problemsOf("function f() {\n  let i = 0;\n}\n// as in new WeakMap()\nconst NAMES = new Map([[1, 2]]);"))
    .toEqual([]);
});

test("files with state of the process have some still", () => {
  for (const path of Object.keys(STATE_OWNERS)) {
    const source = readFileSync(join(REPOSITORY_ROOT, path), "utf8");
    expect(problemsOf(source, path)).toEqual([]);
    expect(problemsOf(source).length).toBeGreaterThan(0);
  }
});

test("tests are left out, and their helpers are not", () => {
  const source = "/** As written. */\nconst a = [...[1]];";
  expect(problemsOf(source, "ffi/a_test.ts")).toEqual([]);
  for (const path of ["testing/a.ts", "scripts/src/a.ts"]) expect(problemsOf(source, path)).toHaveLength(2);
});
