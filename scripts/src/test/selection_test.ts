import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";
import { chooseFiles, FILES_OF_EACH_RUN, LONG_FILES } from "./selection.ts";

const LONG = { "b_test.ts": 10, "c_test.ts": 20, "e_test.ts": 10 };
const FILES = ["a_test.ts", "b_test.ts", "c_test.ts", "d_test.ts", "e_test.ts"];

test("short files are in each run, long ones in turn and as time allows", () => {
  const longChosen = (seconds: number, turn: number) =>
    chooseFiles(FILES, seconds, turn, LONG).filter((file) => file in LONG).map((file) => file[0]).join("");
  expect(chooseFiles(FILES, 0, 0, LONG)).toEqual(["a_test.ts", "d_test.ts"]);
  expect([0, 1, 2, 3].map((turn) => longChosen(20, turn))).toEqual(["be", "c", "be", "be"]);
  expect(longChosen(30, 1)).toBe("ce");
  expect(longChosen(40, 5)).toBe("bce");
});

test("files of each run are in it, however long they take", () => {
  const long = Object.fromEntries(FILES_OF_EACH_RUN.map((file) => [file, 1000]));
  expect(chooseFiles(FILES_OF_EACH_RUN, 0, 0, long)).toEqual(FILES_OF_EACH_RUN);
});

test("after enough commits, each long file was in a run", () => {
  const files = Object.keys(LONG_FILES);
  const longest = Math.max(...Object.values(LONG_FILES));
  const seen = new Set(files.flatMap((_, turn) => chooseFiles(files, longest, turn)));
  expect(files.filter((file) => !seen.has(file))).toEqual([]);
});

test("named files are those of the repository", () => {
  const named = [...Object.keys(LONG_FILES), ...FILES_OF_EACH_RUN];
  expect(named.filter((file) => !existsSync(join(REPOSITORY_ROOT, file)))).toEqual([]);
});
