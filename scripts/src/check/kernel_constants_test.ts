/** Constants that carry a name of the kernel or of the C library have the value that Debian's headers say, and stand in one place. */
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import {
  type Constant,
  constantsIn,
  definedTwice,
  errorNumbersIn,
  headerValues,
  needlessExceptions,
  obstacle,
  unknownNames,
  valueProblems,
  valuesOf,
} from "./kernel_constants.ts";
import type { Processor } from "../build/runtime_patch.ts";
import { listSources, REPOSITORY_ROOT } from "../repository.ts";

const ERROR_TABLE = "ffi/sys/errno.ts";
/** Files that have nothing but constants of the kernel. */
const UAPI = /(^|\/)uapi\.ts$/;

const read = (path: string) => readFileSync(join(REPOSITORY_ROOT, path), "utf8");
const CONSTANTS = listSources().flatMap((path) => constantsIn(path, read(path)));
const ERRORS = errorNumbersIn(ERROR_TABLE, read(ERROR_TABLE));
const NAMES = [...new Set([...CONSTANTS, ...ERRORS].map(({ name }) => name))];

/** Compiling takes seconds. */
const told = new Map<Processor, ReadonlyMap<string, number>>();

function valuesFor(processor: Processor): ReadonlyMap<string, number> {
  const values = told.get(processor) ?? headerValues(NAMES, processor);
  told.set(processor, values);
  return values;
}

function headersTest(processor: Processor, name: string, body: (headers: ReadonlyMap<string, number>) => void): void {
  const missing = obstacle(processor);
  if (missing) test.skip(`${name} # needs ${missing}`, () => {});
  else test(name, () => body(valuesFor(processor)));
}

for (const processor of ["x64", "arm64"] as const) {
  headersTest(processor, `constants have the value that the headers say for ${processor}`, (headers) => {
    expect(valueProblems([...CONSTANTS, ...ERRORS], processor, headers)).toEqual([]);
    // What differs between processors is in the headers of both, so that none is passed over.
    const others = valuesOf(CONSTANTS, processor === "x64" ? "arm64" : "x64");
    const differing = valuesOf(CONSTANTS, processor)
      .flatMap((value, index) => value === others[index] ? [] : [CONSTANTS[index]!.name]);
    expect(differing).toContain("O_NOFOLLOW");
    expect(differing.filter((name) => !headers.has(name))).toEqual([]);
  });
}

headersTest(process.arch as Processor, "no constant has a name that only looks like the kernel's", (headers) => {
  expect(unknownNames([...CONSTANTS, ...ERRORS], headers, UAPI)).toEqual([]);
});

headersTest(process.arch as Processor, "no constant of the kernel is defined twice", (headers) => {
  expect(definedTwice(CONSTANTS, headers)).toEqual([]);
});

test("no exception outlives its constant", () => {
  expect(needlessExceptions(CONSTANTS)).toEqual([]);
});

const SOURCE = [
  "/** Text about const O_NONE = 1; */",
  "export const O_CREAT = 0o100;",
  "const O_LATE = arm ? 1 << 3 : 0x10, O_BOTH = O_CREAT | 0x1;",
  '  const SYS_read: number = process.arch === "arm64" ? 63 : 0;',
  "const OP: Op = { type: 1 };",
  'const TEXT = "const O_TEXT = 1;";',
].join("\n");
const found = constantsIn("ffi/x/uapi.ts", SOURCE);

test("constants are found wherever they stand, with their values for each processor", () => {
  const values = (processor: Processor) =>
    Object.fromEntries(valuesOf(found, processor).map((value, index) => [found[index]!.name, value]));
  expect(values("x64")).toMatchObject({ O_CREAT: 64, O_LATE: 16, O_BOTH: 65, SYS_read: 0 });
  expect(values("arm64")).toMatchObject({ O_CREAT: 64, O_LATE: 8, O_BOTH: 65, SYS_read: 63 });
  expect(found.map(({ name }) => name)).not.toContain("O_NONE");
  expect(found.map(({ name }) => name)).not.toContain("O_TEXT");
  expect(errorNumbersIn("e.ts", "a\n2 ENOENT No such file\n")).toEqual([
    { name: "ENOENT", path: "e.ts", expression: "2" },
  ]);
});

test("a wrong value, an unknown name and a second definition are told", () => {
  const headers = new Map([["O_CREAT", 64], ["O_LATE", 8], ["SYS_read", 0]]);
  expect(valueProblems(found, "x64", headers)).toEqual(["ffi/x/uapi.ts: O_LATE = arm ? 1 << 3 : 0x10: it is 8 on x64"]);
  expect(valueProblems(found, "arm64", headers)).toEqual([
    'ffi/x/uapi.ts: SYS_read = process.arch === "arm64" ? 63 : 0: it is 0 on arm64',
  ]);
  const constant = (name: string, path: string): Constant => ({ name, path, expression: "1" });
  const more = [
    constant("O_LATE", "a.ts"),
    constant("O_NO", "b.ts"),
    constant("MOST", "b.ts"),
    constant("MOST", "c.ts"),
  ];
  expect(unknownNames(more, headers, UAPI)).toEqual(["b.ts: O_NO is in no header of the kernel or the C library"]);
  expect(unknownNames([constant("MOST", "b/uapi.ts")], headers, UAPI)).toHaveLength(1);
  expect(definedTwice([...found, ...more], headers)).toEqual(["O_LATE is defined in ffi/x/uapi.ts and a.ts"]);
});
