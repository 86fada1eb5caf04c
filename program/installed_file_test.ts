import { beforeEach, expect, test } from "bun:test";
import { copyFileSync, linkSync, mkdirSync, statSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { interceptSystemCalls } from "../ffi/sys/intercept.ts";
import { useDirectory } from "../testing/directory.ts";
import { hasOtherBackup, isInstalledCopy, isSameFile } from "./installed_file.ts";

const root = useDirectory("cni-installed-");

let directory = "";
let program = "";
let copy = "";
let directories = 0;
beforeEach(() => {
  directory = join(root, String(directories++));
  mkdirSync(directory);
  [program, copy] = [join(directory, "program"), join(directory, "copy")];
  put(program);
});

/** Larger than what is compared at once. */
const content = (last: number): Buffer => Buffer.alloc(3_000_001, 1).fill(last, 3_000_000);

function put(path: string, last = 1, seconds = 1_000_000_000): void {
  writeFileSync(path, content(last), { mode: 0o755 });
  utimesSync(path, seconds, seconds);
}

test("isSameFile() takes no other build of the same size and time for a copy", () => {
  put(copy);
  expect([isSameFile(copy, program), isInstalledCopy(copy, program)]).toEqual([true, true]);
  put(copy, 2);
  expect([statSync(copy).size, statSync(copy).mtimeMs]).toEqual([statSync(program).size, statSync(program).mtimeMs]);
  expect([isSameFile(copy, program), isInstalledCopy(copy, program)]).toEqual([false, false]);
});

test("isSameFile() reads nothing of one file with two names, nor of files of two times", () => {
  linkSync(program, join(directory, "link"));
  symlinkSync("program", join(directory, "symlink"));
  copyFileSync(program, copy);
  using _ = interceptSystemCalls(["open"], (name) => {
    throw new Error(`called ${name}`);
  });
  const compared = ["link", "symlink", "copy", "absent"].map((name) => isSameFile(join(directory, name), program));
  expect(compared).toEqual([true, true, false, false]);
});

test("hasOtherBackup() finds one of the same size and time, which would be lost", () => {
  mkdirSync(join(directory, ".cni-backup"));
  const backup = join(directory, ".cni-backup/program");
  put(backup);
  expect(hasOtherBackup(directory, "program")).toBe(false);
  put(backup, 2);
  expect(hasOtherBackup(directory, "program")).toBe(true);
});
